"""A source of any two modalities: two files of vectors, and tables of the rows that belong together."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import existing, one_of, require
from vsehub.data.sources import SPLITS, CaptionedImages
from vsehub.data.splits import SplitDraw, files_or_all
from vsehub.data.tables import refuse_rows
from vsehub.data.truth import connected, read_ids, read_pairs
from vsehub.data.vectors.embeddings import VectorFile, open_vectors, row_norms
from vsehub.io.arrays import UnusableRows

log = logging.getLogger(__name__)

_BLOCK_ROWS = 65536
_TABLE = "Give a table with the columns query (the text) and item (the image), one pair per line"


@dataclass(frozen=True, eq=False)
class VectorRows:
    """n rows of a file, which can be indexed like an array (n, D) of float32.

    file: the vectors. chosen: (n,) int64, the numbers of the rows in the file.
    """

    file: VectorFile
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self), self.file.shape[1]

    @property
    def ndim(self) -> int:
        """2."""
        return 2

    @property
    def dtype(self) -> np.dtype:
        """The type of the numbers that indexing returns."""
        return np.dtype(np.float32)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One row (D,) by its number, several (b, D) by a slice or numbers (b,)."""
        rows = self.chosen[index]
        found: np.ndarray = self.file.take(np.atleast_1d(rows)).numpy()
        return found.reshape(*np.shape(rows), self.shape[1])

    def look_through(self) -> None:
        """Read all rows once, in bounded memory. Raises InputError if some cannot be divided by their norms."""
        unusable = UnusableRows()
        for first in range(0, len(self), _BLOCK_ROWS):
            block = self.chosen[first : first + _BLOCK_ROWS]
            unusable.add(block, row_norms(self.file.take(block)).cpu().numpy())
        unusable.refuse(
            f"{self.file}: of the rows, counted from 0:", "Make these vectors again, or leave their pairs out"
        )


class Pairs:
    """Vectors of two modalities, called images and texts; each may belong to any number of the other.

    Each split has a table in `splits`, or all are drawn by shares from one table `pairs`: pairs that share
    an image or a text, directly or through other pairs, stay in one split, so that no image or text is in two. A table
    has the columns query, the text, and item, the image: ids if the side has ids, else row numbers counted from 0. A
    pair given twice counts once. A split only holds the rows that its pairs name.

    images, texts: files, as in `open_vectors`. pairs, splits: tables, as in `read_truth`. draw: for drawn splits; None:
    the defaults. image_ids, text_ids: text files of one id per line, if the file of vectors has
    none. name: for reports, by default the name of the table's folder. Raises InputError if files are missing, or if
    both or neither way of splitting is given.
    """

    def __init__(
        self,
        images: str | Path,
        texts: str | Path,
        pairs: str | Path | None = None,
        splits: Mapping[str, Any] | None = None,
        draw: SplitDraw | None = None,
        image_ids: str | Path | None = None,
        text_ids: str | Path | None = None,
        name: str | None = None,
    ):
        named = files_or_all("pairs", pairs, splits)
        self._paths = {role: existing(role, str(path), _TABLE) for role, path in named.items()}
        self._draw = draw or SplitDraw()
        self._images, self._texts = _opened(images, "image", image_ids), _opened(texts, "text", text_ids)
        self.name = next(iter(self._paths.values())).resolve().parent.name if name is None else name

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test"; the rows of its pairs are read once, in bounded memory.

        Raises InputError for an unknown split, if a table is damaged or names rows or ids that do not exist, if a
        pair is in two tables, or if rows hold NaN, infinite values or only zeros.
        """
        one_of("split", split, SPLITS)
        there = ", ".join(self._splits)
        require(split in self._splits, f"no split {split!r}; there are: {there}. Set data.draw or data.splits")
        pairs = self._splits[split]
        image_rows, images = np.unique(pairs[:, 0], return_inverse=True)
        text_rows, firsts, texts = np.unique(pairs[:, 1], return_index=True, return_inverse=True)
        sides = VectorRows(self._images, image_rows), VectorRows(self._texts, text_rows)
        for side in sides:
            side.look_through()
        names = None if self._images.ids is None else [self._images.ids[row] for row in image_rows]
        return CaptionedImages(*sides, images[firsts], names, np.stack([images, texts], axis=1))

    @cached_property
    def _splits(self) -> dict[str, np.ndarray]:
        """The pairs (P, 2) of each split: rows of images and of texts, sorted by text, then image."""
        keys = {role: self._keys(path) for role, path in self._paths.items()}
        if "pairs" in keys:
            pairs = self._rows(np.unique(keys["pairs"]))
            return draw_pairs(pairs, self._draw, str(self._paths["pairs"]))
        for before, role in combinations(keys, 2):
            twice = np.isin(keys[role], keys[before])
            if twice.any():
                refuse_rows(self._paths[role], twice, f"pairs of {self._paths[before]}", keys[role])
        splits, none = {role: self._rows(np.unique(own)) for role, own in keys.items()}, np.empty((0, 2))
        for split, (column, side) in product(("val", "test"), enumerate(("images", "texts"))):
            own, trained = (np.unique(splits.get(one, none)[:, column]) for one in (split, "train"))
            shared = np.isin(own, trained).sum()
            if shared:
                log.warning("%d of the %d %s of %s are also in train, in other pairs", shared, len(own), side, split)
        return splits

    def _keys(self, path: Path) -> np.ndarray:
        """One number per pair, ascending by text, then image."""
        count = len(self._images)
        texts, images = read_pairs(path, len(self._texts), count, self._texts.ids, self._images.ids)
        return texts * count + images

    def _rows(self, keys: np.ndarray) -> np.ndarray:
        return np.stack([keys % len(self._images), keys // len(self._images)], axis=1)


def draw_pairs(pairs: np.ndarray, draw: SplitDraw, name: str) -> dict[str, np.ndarray]:
    """Pairs (P, 2) split into "train" and the splits that have a share, drawn by seed; connected pairs stay together.

    A split gets complete groups of connected pairs, up to its share of all pairs; train gets the rest and all groups
    that are larger than the smallest share. name: for messages. Raises InputError if a split would be empty.
    """
    images, texts = pairs.max(axis=0) + 1
    _, group = np.unique(connected(pairs[:, 0], pairs[:, 1], images, texts)[pairs[:, 0]], return_inverse=True)
    sizes = np.bincount(group)
    if sizes.max() > len(pairs) / 2:
        log.warning(
            "%s: %d of %d pairs are connected through images and texts that they have in common; they all stay in "
            "train, and the other splits are drawn from the rest",
            name,
            sizes.max(),
            len(pairs),
        )
    room = {split: share * len(pairs) for split, share in (("test", draw.test), ("val", draw.val)) if share > 0}
    order = np.random.default_rng(draw.seed).permutation(len(sizes))
    order = order[sizes[order] <= min(room.values(), default=0)]
    filled = sizes[order].cumsum()
    owner, full = np.full(len(sizes), "train"), 0
    for split, most in room.items():
        taken = (filled > full) & (filled <= full + most)
        owner[order[taken]] = split
        full = filled[taken].max(initial=full)
    found = {split: pairs[owner[group] == split] for split in SPLITS if split == "train" or split in room}
    empty = [split for split, own in found.items() if len(own) == 0]
    require(
        not empty,
        f"{name}: no pairs for {' and '.join(empty)}: the {len(pairs)} pairs form {len(sizes)} groups without an image "
        f"or text in common, the largest of {sizes.max()} pairs. Give other shares, data.draw.val and "
        "data.draw.test, or a table for each split, data.splits.train=FILE and so on",
    )
    return found


def _opened(path: str | Path, side: str, ids: str | Path | None) -> VectorFile:
    """The vectors of a side, with its ids."""
    file = open_vectors(path, f"{side}s", normalize=False)
    return file if ids is None else file.with_ids(read_ids(ids, f"{side}_ids"))
