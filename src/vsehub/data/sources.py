"""The contract of data sources: images, each stored once, captions that refer to them, and splits."""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import numpy as np

from vsehub.checks import require, whole_seed
from vsehub.components import Component
from vsehub.data.photos.pictures import Pictures
from vsehub.io.files import stamp_of, stored_digest

_BLOCK_BYTES = 16 << 20
SPLITS = ("train", "val", "test")
SPLIT_SYNONYMS = {"training": "train", "valid": "val", "validation": "val", "dev": "val", "testing": "test"}


class ArrayLike(Protocol):
    """Rows that can be indexed like an array: an array, a memory map, picture files, rows of a file of vectors."""

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, ...)."""

    @property
    def dtype(self) -> "np.dtype[Any]":
        """The type of the numbers that indexing returns."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: Any, /) -> np.ndarray:
        """One row by its number, several by a slice or an array of numbers."""


@dataclass(frozen=True)
class CaptionedImages:
    """One split of a data set.

    images: (I, ...), one entry per image. captions: T strings, or vectors (T, D) if the texts are of another modality.
    pairs: (P, 2) int64, image and caption of every pair, each once; a caption may belong to several images. names: I
    file names for reports, or None. Raises InputError without images, and unless every caption is in a pair.
    """

    images: ArrayLike
    captions: list[str] | ArrayLike
    pairs: np.ndarray
    names: list[str] | None = None

    def __post_init__(self) -> None:
        require(len(self.images) > 0, "the split has no images")
        paired = np.unique(self.pairs[:, 1])
        require(
            np.array_equal(paired, np.arange(len(self.captions))),
            f"pairs name {len(paired)} captions of {len(self.captions)}; expected every caption, numbered from 0",
        )

    @property
    def shared(self) -> bool:
        """True if a caption belongs to several images."""
        return len(self.pairs) > len(self.captions)

    def name_of(self, row: int) -> str:
        """The name of an image, or "image ROW" if images have no names."""
        return f"image {row}" if self.names is None else self.names[row]

    def text_of(self, row: int) -> str:
        """A caption, or "text ROW" if texts are vectors."""
        return self.captions[row] if isinstance(self.captions, list) else f"text {row}"

    def captions_of(self, row: int) -> list[int]:
        """The numbers of an image's captions, ascending."""
        return sorted(self.pairs[self.pairs[:, 0] == row, 1].tolist())

    def fingerprint(self) -> str:
        """A short hash of all captions, images and pairs, to identify the data."""
        digests = [content_digest(rows) for rows in (self.captions, self.images, self.pairs)]
        return hashlib.blake2b("".join(digests).encode()).hexdigest()[:16]


def blocks_of(rows: ArrayLike) -> Iterator[np.ndarray]:
    """All rows (n, ...), up to 16 MB at a time, in order."""
    step = max(1, _BLOCK_BYTES // max(1, int(np.prod(rows.shape[1:])) * np.dtype(rows.dtype).itemsize))
    for first in range(0, len(rows), step):
        yield np.ascontiguousarray(rows[first : first + step])


def content_digest(rows: Any) -> str:
    """The BLAKE2b hash of a list of texts or of all numbers of an `ArrayLike`.

    For picture files, it covers their preparation and their bytes, which were hashed when the files were checked. The
    hash of a mapped file is stored, and computed again if the file changes.
    """
    if isinstance(rows, list):
        return hashlib.blake2b(json.dumps(rows).encode(), digest_size=32).hexdigest()
    head = repr((tuple(rows.shape), str(rows.dtype))).encode()
    if isinstance(rows, Pictures) and len(rows.contents):
        return _digest([head, repr((rows.resize, rows.preparation)).encode(), rows.contents.tobytes()])
    if not _is_whole_file(rows):
        return _digest(chain([head], blocks_of(rows)))
    stamp = stamp_of(rows.filename)
    # Map the file again: since `rows` was mapped, a file with another stamp may have replaced it.
    numbers = np.memmap(rows.filename, rows.dtype, "r", rows.offset, tuple(rows.shape))
    name = f"rows of {rows.filename} {rows.shape} {rows.dtype}"
    return stored_digest(name, stamp, lambda: _digest(chain([head], blocks_of(numbers))))


def _digest(parts: Iterable[Any]) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def _is_whole_file(rows: Any) -> bool:
    """Return True for an array that maps all numbers of a file."""
    is_mapped = isinstance(rows, np.memmap) and rows.filename is not None and rows.flags.c_contiguous
    return is_mapped and rows.offset + rows.nbytes == os.path.getsize(rows.filename)


def pairs_by_caption(images: np.ndarray) -> np.ndarray:
    """The pairs (T, 2) int64 of T captions that belong to one image each. images: (T,) the image of each caption."""
    return np.stack([images, np.arange(len(images))], axis=1).astype(np.int64)


class Source(Protocol):
    """A data set: a name for reports, and its splits, each loaded on demand."""

    name: str

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test". Raises InputError if it is missing or damaged."""


def split_named(word: str) -> str:
    """ "train", "val" or "test" for a word that a table or a folder uses for it ("validation"), else the word."""
    name = word.strip().lower()
    return SPLIT_SYNONYMS.get(name, name)


def files_or_all(setting: str, all_files: Any, splits: Mapping[str, Any] | None) -> dict[str, Any]:
    """The files by split or, if one setting gives the files of all splits, {setting: all_files}.

    splits: "train", "val" or "test" -> its file or files; None: the split is absent. Raises InputError unless the
    files came in exactly one of these ways.
    """
    present = {split: files for split, files in (splits or {}).items() if files is not None}
    unknown = ", ".join(sorted(set(present) - set(SPLITS)))
    fault = f"neither {setting} nor splits is given" if all_files is None else f"both {setting} and splits are given"
    require(
        not unknown and (all_files is None) == bool(present),
        f"{f'splits has {unknown}' if unknown else fault}; give the files of each split, data.splits.train=FILE "
        f"data.splits.val=FILE data.splits.test=FILE, or those of all splits, data.{setting}=FILE",
    )
    return {split: present[split] for split in SPLITS if split in present} or {setting: all_files}


@dataclass(frozen=True)
class SplitDraw(Component):
    """The settings for drawing splits if the data have none.

    val, test: the shares of these splits; 0: no such split. The rest is for training. seed: seed of the draw. Raises
    InputError for shares that leave nothing for training.
    """

    val: float = 0.1
    test: float = 0.1
    seed: int = 0

    def __post_init__(self) -> None:
        require(
            min(self.val, self.test) >= 0 and self.val + self.test < 1,
            f"val is {self.val} and test {self.test}; expected shares that leave some for train, e.g. 0.1 and 0.1",
        )
        whole_seed("seed", self.seed)
