"""The source of pictures that are listed with captions and splits: by a json file, a table or a dataset."""

import hashlib
import json
import logging
import os
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import InputError, existing, require
from vsehub.components import Component
from vsehub.data.photos.pictures import THREADS, PictureFile, Pictures, PictureSettings, hash_if_intact, resize_length
from vsehub.data.sources import SPLITS, CaptionedImages, SplitDraw, pairs_by_caption, split_named
from vsehub.io.arrays import listed
from vsehub.io.files import cache_folder, read_object, stamp_of, write_text
from vsehub.io.progress import bar

log = logging.getLogger(__name__)

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff")
_AT_ONCE = 1024  # pictures submitted to the threads at a time, so that a whole split does not wait in memory


class Listed(NamedTuple):
    """A picture, or one of several rows of it.

    file: its path, or a picture in a larger file whose repr() changes whenever the picture changes. name: name in
    reports. captions: texts; None and empty ones are left out. split: a word for it; None in all rows: splits are
    drawn.
    """

    file: PictureFile
    name: str
    captions: list[Any]
    split: Any = None


class ListedPhotos(Component):
    """A source of the pictures that a listing gives; a subclass reads the listing.

    name: name in reports. listing: the file or folder that lists the pictures. pictures: settings for reading pictures;
    None: the defaults. draw: settings for drawing splits if the listing has none; None: the defaults.

    images: the folder of the pictures, by default the listing; the cache of checked pictures is named after it. shared:
    whether equal captions of several pictures are one text that belongs to all of them, or several texts.
    """

    shared = True

    def __init__(self, name: str, listing: Path, pictures: PictureSettings | None, draw: SplitDraw | None = None):
        self.name, self.listing, self.images = name, listing, listing
        self._pictures, self._draw = pictures or PictureSettings(), draw or SplitDraw()

    @abstractmethod
    def read_listing(self) -> Iterable[Listed]:
        """All pictures in order; rows of one file are one picture. Raises InputError if the listing is damaged."""

    def require_pictures(self, splits: Sequence[str]) -> None:
        """Raise InputError naming the pictures of these splits whose files are missing.

        With `unreadable` "stop" every file is decoded too; `load` does not decode the intact ones again.
        """
        rows = [row for row in self._rows if row.split in splits and isinstance(row.file, str)]
        absent = [row.name for row in rows if not os.path.exists(str(row.file))]
        require(
            not absent,
            f"{self.listing}: of {len(rows):,} pictures {len(absent):,} are missing in {self.images}: "
            f"{listed(absent, most=10)}. Give the folder of the pictures, data.images=FOLDER, or take their rows out",
        )
        if self._pictures.unreadable == "stop":
            intact_pictures(rows, self.images, leave_out=False)

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test", in the listing's order; every picture is decoded once as a check.

        Raises InputError if the listing is damaged or lacks the split, if a picture is missing and, with `unreadable`
        "stop", if some cannot be decoded.
        """
        self.require_pictures([split])
        rows = [row for row in self._rows if row.split == split]
        require(
            bool(rows),
            f"{self.listing} has no pictures with captions of the split {split!r}; it has "
            f"{dict(Counter(row.split for row in self._rows))}. How splits are drawn by seed: docs/data.md",
        )
        rows, contents = intact_pictures(rows, self.images, self._pictures.unreadable == "leave_out")
        texts, pairs = pairs_of([row.captions for row in rows], self.shared)
        log.info("%s: %s pictures, %s captions", split, f"{len(rows):,}", f"{len(texts):,}")
        settings, files = self._pictures, [row.file for row in rows]
        augments = settings.augment == "vsepp" and split == "train"
        pictures = Pictures(files, settings.size, resize_length(settings.size), settings.crops, augments, contents)
        return CaptionedImages(pictures, texts, pairs, [row.name for row in rows])

    @cached_property
    def _rows(self) -> list[Listed]:
        """All pictures that have captions, with their splits."""
        merged: dict[PictureFile, Listed] = {}
        bare: list[str] = []
        for number, row in enumerate(self.read_listing(), 1):
            split = None if row.split is None else split_named(str(row.split))
            entry = merged.setdefault(row.file, row._replace(split=split, captions=[]))
            require(entry.split == split, f"{self.listing}: {row.name} is in two splits, {entry.split} and {split}")
            texts = [text for text in row.captions if text is not None]
            require(all(isinstance(text, str) for text in texts), f"{self.listing}: {row.name}: {texts} are not texts")
            captions = [" ".join(text.split()) for text in texts if text.strip()]
            entry.captions.extend(captions)
            if not captions:
                bare.append(f"{row.name} (row {number})")
        if bare:
            log.warning("%s: entries without captions are left out: %s", self.listing, listed(bare))
        rows = [row for row in merged.values() if row.captions]
        if len({row.name for row in rows}) < len(rows):
            rows = [row._replace(name=f"{n}/{row.name}") for n, row in enumerate(rows)]
        splits = {row.split for row in rows}
        require(
            splits == {None} or splits <= {*SPLITS},
            f"{self.listing} has the splits {listed(sorted(map(repr, splits)))}; known: train, val, test",
        )
        if None in splits:
            drawn = draw_splits(len(rows), self._draw).tolist()
            rows = [row._replace(split=split) for row, split in zip(rows, drawn, strict=True)]
        return rows


def pairs_of(captions: Sequence[Sequence[str]], shared: bool) -> tuple[list[str], np.ndarray]:
    """The texts, and (P, 2) int64, picture and text of all pairs, sorted by text, then picture.

    captions: captions of each picture. shared: equal captions are one text, numbered in the order of pictures.
    """
    if not shared:
        texts = [text for image in captions for text in image]
        return texts, pairs_by_caption(np.repeat(np.arange(len(captions)), [*map(len, captions)]))
    numbers = {text: number for number, text in enumerate(dict.fromkeys(chain.from_iterable(captions)))}
    pairs = {(numbers[text], number) for number, image in enumerate(captions) for text in image}
    return list(numbers), np.array([(image, text) for text, image in sorted(pairs)], np.int64)


def draw_splits(count: int, draw: SplitDraw) -> np.ndarray:
    """The split of each of `count` pictures, drawn by seed; train gets what the shares of the others leave."""
    order = np.random.default_rng(draw.seed).permutation(count)
    val, test = round(draw.val * count), round(draw.test * count)
    splits = np.full(count, "train", dtype="<U5")
    splits[order[:val]] = "val"
    splits[order[val : val + test]] = "test"
    return splits


def intact_pictures(rows: Sequence[Listed], folder: Path, leave_out: bool) -> tuple[list[Listed], np.ndarray]:
    """The pictures that can be decoded, and (I,) hashes of the bytes of their files.

    Raises InputError naming pictures that cannot be decoded. With `leave_out` it logs a warning instead, unless no
    picture can be decoded.
    """
    keys = [_key(row.file) for row in rows]
    intact, damaged = picture_hashes(rows, keys, folder)
    if damaged:
        said = f"{folder}: {len(damaged):,} of {len(rows):,} pictures: {listed(damaged, most=20)}"
        require(
            leave_out and len(damaged) < len(rows),
            f"{said}. data.pictures.unreadable=leave_out omits them with their captions",
        )
        log.warning("%s. They are left out", said)
    readable = [row for row, key in zip(rows, keys, strict=True) if key in intact]
    return readable, np.array([intact[key] for key in keys if key in intact], "S64")


def picture_hashes(rows: Sequence[Listed], keys: Sequence[str], folder: Path) -> tuple[dict[str, str], list[str]]:
    """Hashes of the intact pictures' files by their keys, and the names of the others with the reason.

    keys: the `_key` of each row. Intact pictures are remembered in the user's caches, in a file for each `folder`,
    until they change.
    """
    cache = cache_folder() / f"pictures-{hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]}.json"
    try:
        intact = read_object(cache)
    except InputError:  # a damaged cache is written anew
        intact = {}
    unknown = [(key, row) for key, row in zip(keys, rows, strict=True) if key not in intact]
    damaged = []
    try:
        with ThreadPoolExecutor(THREADS) as pool:
            for first in bar(f"checking pictures of {folder.name}", range(0, len(unknown), _AT_ONCE), unit=" thousand"):
                batch = unknown[first : first + _AT_ONCE]
                contents = pool.map(hash_if_intact, [row.file for _, row in batch])
                for (key, row), content in zip(batch, contents, strict=True):
                    if isinstance(content, Exception):
                        damaged.append(f"{row.name}: {content}")
                    else:
                        intact[key] = content
    finally:  # pictures that passed before the check was interrupted need not be decoded again
        if unknown:
            write_text(cache, json.dumps(intact, indent=0))
    return intact, damaged


def _key(file: PictureFile) -> str:
    """A text that changes whenever the picture changes."""
    return f"{file} {stamp_of(file)}" if isinstance(file, str) else repr(file)


def folder_pictures(folder: str | Path, size: int, resize: int, crops: int = 1) -> CaptionedImages:
    """The pictures of a folder as a split without captions, by name; each is decoded once as a check.

    size, resize, crops: of `Pictures`. Files that cannot be decoded are left out with a warning. Hidden files and
    folders, and linked folders, are passed over. Raises InputError if the folder is absent or holds no picture.
    """
    root = existing("folder", folder, "Give a folder of pictures")
    below = [path.relative_to(root) for path in root.rglob("*") if path.suffix.lower() in SUFFIXES and path.is_file()]
    names = sorted(str(path) for path in below if not any(part.startswith(".") for part in path.parts))
    require(bool(names), f"folder: {folder} holds no pictures ({', '.join(SUFFIXES)}), nor do the folders below it")
    rows, contents = intact_pictures([Listed(str(root / name), name, []) for name in names], root, leave_out=True)
    pictures = Pictures([row.file for row in rows], size, resize, crops, contents=contents)
    return CaptionedImages(pictures, [], np.empty((0, 2), np.int64), [row.name for row in rows])
