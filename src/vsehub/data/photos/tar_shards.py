"""Tar files of pictures and captions, with a stored index of the positions of the pictures."""

import hashlib
import json
import logging
import os
import re
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import InputError, fail, nearest, regular, require
from vsehub.data.photos.source import is_unicode
from vsehub.io.arrays import load_archive
from vsehub.io.files import atomic
from vsehub.io.rows import listed
from vsehub.io.text import stays_inside

log = logging.getLogger(__name__)

_PICTURES = ("jpg", "jpeg", "png", "webp")
_BLOCK = 512  # bytes of a tar header; members begin at multiples
_VERSION = 1  # of the index; indexes of other versions are made again


class Member(NamedTuple):
    """A picture in a shard: `size` bytes from `offset`."""

    shard: str
    offset: int
    size: int
    name: str

    def read(self) -> bytes:
        """The bytes. Opens the shard anew: threads and processes share no position in it."""
        with regular(Path(self.shard)).open("rb") as file:
            file.seek(self.offset)
            found = file.read(self.size)
        require(len(found) == self.size, f"the shard ends after {len(found)} of its {self.size} bytes")
        return found

    def __str__(self) -> str:
        return f"{self.name} in {self.shard}"


@dataclass(frozen=True)
class TarShard:
    """A tar file of pictures; a `PictureContainer`.

    changed: its modification time. offset, size: (I,) where each picture is in it.
    """

    path: str
    changed: int
    offset: np.ndarray
    size: np.ndarray

    def picture(self, row: int, name: str) -> Member:
        """See `PictureContainer`."""
        return Member(self.path, int(self.offset[row]), int(self.size[row]), name)

    def state(self, row: int) -> list[int]:
        """The position of the picture, and the modification time."""
        return [int(self.offset[row]), int(self.size[row]), self.changed]


class ShardIndex(NamedTuple):
    """The positions of the pictures of a shard, and their captions.

    stamp: size and modification time of the shard. names, offset, size: (I,) of each picture. images: (C,) the picture
    of each caption. captions: C strings.
    """

    stamp: list[int]
    names: list[str]
    offset: np.ndarray
    size: np.ndarray
    images: np.ndarray
    captions: list[str]


def index_of(path: str, keys: Sequence[str] | None, folder: Path) -> ShardIndex:
    """The index of a shard: from its file in `folder` while the shard is unchanged, else made anew and stored there.

    keys: of the captions in the .json; None: the .txt is the caption. Raises InputError if the shard is cut off,
    damaged or without captions.
    """
    stat = os.stat(path)
    stamp = [stat.st_size, stat.st_mtime_ns]
    what = json.dumps([os.path.realpath(path), None if keys is None else list(keys)])
    file = folder / f"{hashlib.sha256(what.encode()).hexdigest()[:24]}.npz"
    found = _stored(file, stamp)
    if found is None:
        found = _indexed(path, stamp, keys)
        try:
            _store(file, found)
        except OSError as error:
            log.warning("%s cannot be written (%s): the shard will be indexed again at the next start", file, error)
    return found


def _stored(file: Path, stamp: list[int]) -> ShardIndex | None:
    """The index in a file; None if it is absent, damaged, or of another state of the shard."""
    try:
        held = load_archive(file)
        if held["stamp"].tolist() != [_VERSION, *stamp]:
            return None
        names, captions = (json.loads(held[key].tobytes()) for key in ("names", "captions"))
        offset, size, images = (held[key].astype(np.int64) for key in ("offset", "size", "images"))
    except Exception:  # numpy parses headers as Python: damage raises almost anything
        return None
    index = ShardIndex(stamp, names, offset, size, images, captions)
    return index if _is_whole(index) else None


def _is_whole(index: ShardIndex) -> bool:
    """Whether an index that was read from a file is one of a shard of its size."""
    stamp, names, offset, size, images, captions = index
    return (
        all(isinstance(one, list) and all(isinstance(text, str) for text in one) for one in (names, captions))
        and offset.shape == size.shape == (len(names),)
        and images.shape == (len(captions),)
        and bool(((images >= 0) & (images < len(names))).all())
        and bool(((offset >= 0) & (size >= 0) & (offset <= stamp[0] - size)).all())
    )


def _store(file: Path, index: ShardIndex) -> None:
    names, captions = (np.frombuffer(json.dumps(one).encode(), np.uint8) for one in (index.names, index.captions))
    stamp = np.array([_VERSION, *index.stamp], np.int64)
    with atomic(file) as handle:
        np.savez(
            handle,
            stamp=stamp,
            names=names,
            offset=index.offset,
            size=index.size,
            images=index.images,
            captions=captions,
        )


def _indexed(path: str, stamp: list[int], keys: Sequence[str] | None) -> ShardIndex:
    """Read a shard through once: the headers of all members, and the contents of those with captions."""
    pictures: dict[str, tuple[str, int, int]] = {}
    texts: dict[str, list[str]] = {}
    wanted = "txt" if keys is None else "json"
    kinds: set[str] = set()
    with regular(Path(path)).open("rb") as raw:
        for member in _members(path, raw):
            head, tail = os.path.split(member.name)
            stem, _, kind = tail.partition(".")
            key, kind = os.path.join(head, stem), kind.lower()
            kinds.add(kind)
            if kind in _PICTURES:
                if key in pictures:
                    fail(f"{path} holds two pictures {key!r}. Write it again, one picture for each name")
                pictures[key] = (member.name, member.offset_data, member.size)
            elif kind == wanted:
                raw.seek(member.offset_data)
                texts[key] = _captions(path, member.name, raw.read(member.size), keys)
    require(
        len(pictures) > 0,
        f"{path} holds no pictures (.{', .'.join(_PICTURES)}); it has {_kinds(kinds)}",
    )
    advice = (
        "Name the key of the captions in the json with data.caption"
        if keys is None and "json" in kinds
        else "Write the captions beside the pictures, under the same name"
    )
    require(len(texts) > 0, f"{path} holds no .{wanted} with captions; it has {_kinds(kinds)}. {advice}")
    names = [_clean(path, name) for name, _, _ in pictures.values()]
    require(len(set(names)) == len(names), f"{path}: the names of its pictures differ by '..' or '/' only; rename them")
    spans = np.array([(offset, size) for _, offset, size in pictures.values()], np.int64)
    owned = [texts.get(key, []) for key in pictures]
    images = np.repeat(np.arange(len(owned)), [len(one) for one in owned])
    return ShardIndex(stamp, names, spans[:, 0], spans[:, 1], images, [one for some in owned for one in some])


def _members(path: str, raw: Any) -> Iterator[tarfile.TarInfo]:
    """The files in a shard. Raises InputError if it is damaged or cut off, which tarfile in part reads as its end."""
    last = -1
    try:
        with tarfile.open(fileobj=raw, mode="r:") as tar:
            while (member := tar.next()) is not None:
                require(
                    member.offset > last and member.size >= 0,
                    f"{path} is damaged: its members do not follow each other. Copy or download it again",
                )
                last = member.offset
                tar.members = []  # type: ignore[attr-defined]  # else it keeps all of them
                if member.isreg() and not member.issparse():
                    yield member
            raw.seek(tar.offset)
    except (tarfile.TarError, OSError, EOFError, ValueError, UnicodeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is no tar file, or damaged ({error}). Copy or download it again") from error
    end = raw.read(_BLOCK)
    require(
        len(end) == _BLOCK,
        f"{path} is cut off: it ends without the mark of a tar file's end. Copy or download it again",
    )
    require(not any(end), f"{path} is damaged at byte {tar.offset}. Copy or download it again")


def _captions(path: str, name: str, content: bytes, keys: Sequence[str] | None) -> list[str]:
    """The captions of a .txt, or of a .json under `keys`."""
    if keys is None:
        try:
            return [content.decode("utf-8-sig")]
        except UnicodeDecodeError as error:
            raise InputError(f"{path}: {name} is not UTF-8 ({error}). Write the shard again") from error
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: {name} is no json ({error}). Write the shard again") from error
    if not isinstance(found, dict):
        fail(f"{path}: {name} is no object; expected one with the key {', '.join(keys)}")
    captions = []
    for key in keys:
        require(
            key in found,
            f"{path}: {name} has no key {key!r}{nearest(key, found)}; it has {listed(list(found), most=20)}. Name the "
            "key of the captions with data.caption",
        )
        for one in found[key] if isinstance(found[key], list) else [found[key]]:
            require(
                one is None or isinstance(one, str),
                f"{path}: {name} holds {str(one)[:60]!r} under {key!r}; expected a text or a list of texts",
            )
            captions.append(one or "")
    return captions


def _clean(path: str, name: str) -> str:
    """A member's name as an id, safe for other programs that use ids as paths."""
    require(
        not {"\n", "\r"} & set(name) and is_unicode(name),
        f"{path} holds a file named {name!r}; a name is one line of valid text. Write the shard again",
    )
    plain = os.path.normpath(name)
    return (
        plain
        if stays_inside(plain)
        else "/".join(part for part in re.split(r"[\\/:]", plain) if part not in ("", ".."))
    )


def _kinds(kinds: set[str]) -> str:
    return listed([f".{kind}" for kind in sorted(kinds)]) or "no files"
