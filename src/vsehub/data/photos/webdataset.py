"""Photos in tar shards (WebDataset): listed once, then read by position, so that they can be shuffled as files can."""

import glob
import json
import os
import re
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

from vsehub.checks import require
from vsehub.data.photos.listings import flat
from vsehub.data.photos.pictures import THREADS, PictureSettings
from vsehub.data.photos.source import Listed, ListedPhotos
from vsehub.data.sources import SplitDraw, files_or_all
from vsehub.io.arrays import readable
from vsehub.io.files import stamp_of
from vsehub.io.progress import bar

_PICTURES = ("jpg", "jpeg", "png", "webp")
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")


class Member(NamedTuple):
    """A picture in a shard: `size` bytes from `offset`. changed: the shard's stamp."""

    shard: str
    changed: tuple[int, ...]
    name: str
    offset: int
    size: int

    def read(self) -> bytes:
        """The bytes. Opens the shard anew: threads and processes share no position in it."""
        with open(self.shard, "rb") as file:
            file.seek(self.offset)
            return file.read(self.size)

    def __str__(self) -> str:
        return f"{self.name} in {self.shard}"


class WebDataset(ListedPhotos):
    """Tar shards: files of one name are a picture (jpg, jpeg, png, webp) and its captions.

    shards: a folder of .tar files, one file, or a pattern (train-{000..099}.tar, train-*.tar), or a list of these;
    splits are drawn from them by seed, picture by picture. splits: or the shards of each split. caption: None takes the
    .txt, one caption; else the key of the .json, or a list of keys, that holds a caption or a list of them. name: for
    reports, by default the name of the shards' folder. draw, pictures: as in `ListedPhotos`.
    """

    def __init__(
        self,
        shards: str | list[str] | None = None,
        splits: Mapping[str, Any] | None = None,
        caption: str | list[str] | None = None,
        name: str | None = None,
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        files = files_or_all("shards", shards, splits)
        self._shards = [(path, role) for role, pattern in files.items() for path in shard_files(pattern)]
        place = Path(self._shards[0][0]).parent
        self._keys = [caption] if isinstance(caption, str) else caption
        super().__init__(place.resolve().name if name is None else name, place, pictures, draw)

    def read_listing(self) -> Iterator[Listed]:
        """Yield the samples of all shards."""
        with ThreadPoolExecutor(THREADS) as pool:
            contents = pool.map(lambda shard: read_shard(shard[0], self._keys), self._shards)
            for (_, role), samples in zip(
                self._shards, bar("listing shards", contents, len(self._shards)), strict=True
            ):
                for member, captions in samples:
                    yield Listed(member, member.name, captions, None if role == "shards" else role)


def shard_files(patterns: str | Sequence[str]) -> list[str]:
    """The .tar files that a folder, a file, a pattern or a list of these stands for, in this order; folders by name."""
    paths: list[str] = []
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        for name in numbered(str(pattern)):
            files = sorted(glob.glob(os.path.join(name, "*.tar") if os.path.isdir(name) else name))
            require(len(files) > 0, f"shards: no such file or folder, or no .tar file in it: {name}")
            paths += files
    require(bool(paths), "shards: no files; give a folder of .tar files, or a pattern such as train-{000..099}.tar")
    return paths


def numbered(pattern: str) -> list[str]:
    """The names that {000..099} in a pattern stands for, with its zeros."""
    span = _RANGE.search(pattern)
    if span is None:
        return [pattern]
    names = (f"{number:0{len(span[1])}d}" for number in range(int(span[1]), int(span[2]) + 1))
    return [expanded for name in names for expanded in numbered(pattern.replace(span[0], name, 1))]


def read_shard(path: str, keys: Sequence[str] | None) -> list[tuple[Member, list[Any]]]:
    """The pictures of a shard and their captions.

    keys: keys of the captions in the .json; None: the .txt is the caption. Raises InputError if the shard is cut off or
    damaged.
    """
    changed, pictures, texts = stamp_of(path), {}, {}
    with readable(Path(path), tarfile.TarError, KeyError, TypeError, kind="a tar file"):
        with tarfile.open(path, "r:") as tar:
            for member in filter(tarfile.TarInfo.isreg, tar):
                ending = os.path.basename(member.name).partition(".")[2]
                key, kind = member.name.removesuffix(ending), ending.lower()
                part = Member(path, changed, member.name, member.offset_data, member.size)
                if kind in _PICTURES:
                    require(key not in pictures, f"{path} holds two pictures {key!r}")
                    pictures[key] = part
                elif keys is None and kind == "txt":
                    texts[key] = [part.read().decode("utf-8-sig")]
                elif keys is not None and kind == "json":
                    content = json.loads(part.read())
                    texts[key] = flat(content[name] for name in keys)
            end = tar.offset
        with open(path, "rb") as file:  # tarfile takes damage between two files for the end
            file.seek(end)
            whole = file.read(tarfile.BLOCKSIZE) == bytes(tarfile.BLOCKSIZE)
        require(whole, f"{path} is damaged or cut off at byte {end}")
    return [(picture, texts.get(key, [])) for key, picture in pictures.items()]
