"""Photos in tar shards (WebDataset): indexed once, then read by position, so that they can be shuffled as files can."""

import glob
import math
import os
import re
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np

from vsehub.checks import existing, require
from vsehub.data.photos.contained import Content, list_contents
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.photos.source import ListedPhotos, Listing
from vsehub.data.photos.tar_shards import TarShard, index_of
from vsehub.data.splits import SplitDraw, SplitFiles, files_or_all
from vsehub.io.progress import bar
from vsehub.io.rows import listed

_MOST_BRACES = 1_000_000  # files that {000..999} may stand for
_RANGE = re.compile(r"\{(\d+)\.\.(\d+)\}")
_SHARDS = "Give a folder of .tar files, one of them, or a pattern such as train-{000..099}.tar or train-*.tar"


class WebDataset(ListedPhotos):
    """Tar shards in which files of one name belong together: a picture (jpg, jpeg, png, webp) and its captions.

    shards: a folder of .tar files, one file, or a pattern (train-{000..099}.tar, train-*.tar), or a list of these;
    splits are drawn from them by seed, picture by picture. splits: or the shards of each split. caption: None takes the
    .txt, one caption; else the key of the .json, or a list of keys, that holds a caption or a list of them. name: for
    reports, by default the name of the shards' folder. draw, pictures: of `ListedPhotos`.

    Each shard is read through once; where its pictures begin, and the captions, are remembered in `pictures.cache` as
    long as the shard has the same size and modification time.
    """

    redraw = "data.shards=SHARDS instead of data.splits"

    def __init__(
        self,
        shards: str | list[str] | None = None,
        splits: SplitFiles | None = None,
        caption: str | list[str] | None = None,
        name: str | None = None,
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        asked = files_or_all("shards", shards, splits)
        prefix = "splits." if shards is None else ""
        self._shards = {role: shard_files(f"{prefix}{role}", pattern) for role, pattern in asked.items()}
        files = [os.path.realpath(one) for found in self._shards.values() for one in found]
        twice = sorted({one for one in files if files.count(one) > 1}) if len(set(files)) < len(files) else []
        require(not twice, f"shards come twice: {listed(twice)}. A shard belongs to one split, and once to it")
        self._keys = [caption] if isinstance(caption, str) else caption
        require(self._keys is None or len(self._keys) > 0, "caption is an empty list; give a key of the json, or null")
        super().__init__(Path(files[0]).parent.name if name is None else name, pictures, draw)

    def read_listing(self) -> Listing:
        """See `ListedPhotos`."""
        paths = [path for found in self._shards.values() for path in found]
        indexed = partial(index_of, keys=self._keys, folder=self._pictures.folder / "shards")
        shown = bar("indexing shards", total=len(paths), unit=" shards")
        with shown, ThreadPoolExecutor(self._pictures.workers) as pool:
            indexes = [(index, shown.update())[0] for index in pool.map(indexed, paths)]
        roles = [role for role, found in self._shards.items() for _ in found]
        contents = [
            Content(
                TarShard(path, index.stamp[1], index.offset, index.size),
                Path(path).stem,
                index.names,
                index.images,
                index.captions,
                None if "shards" in self._shards else np.repeat(role, len(index.names)),
            )
            for path, index, role in zip(paths, indexes, roles, strict=True)
        ]
        title = f"{len(paths)} shard{'s' if len(paths) > 1 else ''}"
        return list_contents(contents, "shards", title, "\n".join(os.path.realpath(one) for one in paths))


def shard_files(setting: str, given: str | Sequence[str]) -> list[str]:
    """The .tar files that a folder, a file, a pattern or a list of these stands for, in this order; folders by name.

    setting: its name, for messages. Raises InputError if files are missing, or if there are none.
    """
    found: list[str] = []
    for one in [given] if isinstance(given, str) else given:
        if os.path.isdir(one):
            inside = sorted(str(path) for path in Path(one).glob("*.tar"))
            require(len(inside) > 0, f"{setting}: the folder {one} holds no .tar files. {_SHARDS}")
            found += inside
            continue
        for name in _expanded(setting, one):
            if glob.has_magic(name) and not os.path.exists(name):
                inside = sorted(glob.glob(name))
                require(len(inside) > 0, f"{setting}: no file matches {name}. {_SHARDS}")
                found += inside
            else:
                found.append(str(existing(setting, name, _SHARDS)))
    require(len(found) > 0, f"{setting} is an empty list. {_SHARDS}")
    others = [one for one in found if not one.endswith(".tar") or not os.path.isfile(one)]
    require(
        not others,
        f"{setting}: {listed(others)}: no .tar file. Of a compressed shard no part can be read by its position: unpack "
        f"it, for example with gunzip. {_SHARDS}",
    )
    return found


def _expanded(setting: str, pattern: str) -> Iterator[str]:
    """The names that {000..099} in a pattern stands for, with its zeros."""
    pieces = _RANGE.split(pattern)
    texts, ranges = pieces[::3], []
    for first, last in zip(pieces[1::3], pieces[2::3], strict=True):
        require(int(first) <= int(last), f"{setting}: {{{first}..{last}}} counts down; give the smaller number first")
        ranges.append(range(int(first), int(last) + 1))
    widths = [len(first) for first in pieces[1::3]]
    count = math.prod(len(one) for one in ranges)
    require(count <= _MOST_BRACES, f"{setting}: {pattern} stands for {count:,} files; give at most {_MOST_BRACES:,}")
    for numbers in product(*ranges):
        words = [f"{number:0{width}d}" for number, width in zip(numbers, widths, strict=True)]
        yield "".join(part for pair in zip(texts, [*words, ""], strict=True) for part in pair)
