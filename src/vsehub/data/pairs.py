"""A source of any two modalities: two files of vectors, and tables of the rows that belong together."""

from collections.abc import Mapping
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import existing, require
from vsehub.data.sources import SPLITS, CaptionedImages, SplitDraw, files_or_all
from vsehub.data.truth import connected_groups, read_pairs
from vsehub.data.vectors.embeddings import check_vectors, open_vectors

_TABLE = "Give a table with the columns query (the text) and item (the image), one pair per line"


class Pairs:
    """Vectors of two modalities, called images and texts; each may belong to any number of the other.

    Each split has a table in `splits`, or all are drawn by shares from one table `pairs`: pairs that share
    an image or a text, directly or through other pairs, stay in one split, so that no image or text is in two. A table
    has the columns query, the text, and item, the image: ids if the side has ids, else row numbers counted from 0. A
    pair given twice counts once. A split only holds the rows that its pairs name.

    images, texts: files, as in `open_vectors`. pairs, splits: tables, as in `read_truth`. draw: settings of drawn
    splits; None: the defaults. name: name in reports, by default that of the table's folder. Raises InputError if files
    are missing, or if both or neither way of splitting is given.
    """

    def __init__(
        self,
        images: str | Path,
        texts: str | Path,
        pairs: str | Path | None = None,
        splits: Mapping[str, Any] | None = None,
        draw: SplitDraw | None = None,
        name: str | None = None,
    ):
        tables = files_or_all("pairs", pairs, splits)
        self._paths = {split: existing(split, str(path), _TABLE) for split, path in tables.items()}
        self._draw = draw or SplitDraw()
        self._images = open_vectors(images, "images", normalize=False)
        self._texts = open_vectors(texts, "texts", normalize=False)
        self.name = next(iter(self._paths.values())).resolve().parent.name if name is None else name

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test", its vectors in memory; all vectors are read once.

        Raises InputError for an unknown split, if a table is damaged or names rows or ids that do not exist, if a
        pair is in two tables, or if vectors hold NaN, infinite values or only zeros.
        """
        available = ", ".join(self._splits)
        require(split in self._splits, f"no split {split!r}; there are: {available}. Set data.draw or data.splits")
        pairs = self._splits[split]
        image_rows, images = np.unique(pairs[:, 0], return_inverse=True)
        text_rows, texts = np.unique(pairs[:, 1], return_inverse=True)
        sides = self._images.take(image_rows).numpy(), self._texts.take(text_rows).numpy()
        names = None if self._images.ids is None else [self._images.ids[row] for row in image_rows]
        return CaptionedImages(*sides, np.stack([images, texts], axis=1), names)

    @cached_property
    def _splits(self) -> dict[str, np.ndarray]:
        """The pairs (P, 2) of each split: rows of images and of texts, sorted by text, then image."""
        check_vectors(self._images)
        check_vectors(self._texts)
        splits = {split: self._pairs_of(path) for split, path in self._paths.items()}
        if "pairs" in splits:
            return draw_pairs(splits["pairs"], self._draw, str(self._paths["pairs"]))
        for first, second in combinations(splits, 2):
            both = np.concatenate([splits[first], splits[second]])
            twice = len(both) - len(np.unique(both, axis=0))
            require(twice == 0, f"{self._paths[second]}: {twice} pairs are also in {self._paths[first]}")
        return splits

    def _pairs_of(self, path: Path) -> np.ndarray:
        """The pairs (P, 2) of a table, each once."""
        texts, images = read_pairs(path, len(self._texts), len(self._images), self._texts.ids, self._images.ids)
        texts, images = np.unique(np.stack([texts, images]), axis=1)
        return np.stack([images, texts], axis=1)


def draw_pairs(pairs: np.ndarray, draw: SplitDraw, name: str) -> dict[str, np.ndarray]:
    """Pairs (P, 2) split into "train" and the splits that have a share, drawn by seed; connected pairs stay together.

    A split gets complete groups of connected pairs, up to its share of all pairs; train gets the rest and all groups
    that are larger than the smallest share. name: name in messages. Raises InputError if a split would be empty.
    """
    images, texts = pairs.T
    group_of_image = connected_groups(images, texts, images.max() + 1, texts.max() + 1)
    _, group = np.unique(group_of_image[images], return_inverse=True)
    sizes = np.bincount(group)
    capacity = {split: share * len(pairs) for split, share in (("test", draw.test), ("val", draw.val)) if share > 0}
    order = np.random.default_rng(draw.seed).permutation(len(sizes))
    order = order[sizes[order] <= min(capacity.values(), default=0)]
    ends = sizes[order].cumsum()  # number of pairs up to the end of each group, in the drawn order
    split_of_group = np.full(len(sizes), "train")
    start = 0
    for split, most in capacity.items():
        taken = (ends > start) & (ends <= start + most)
        split_of_group[order[taken]] = split
        start = ends[taken].max(initial=start)
    splits = {split: pairs[split_of_group[group] == split] for split in SPLITS if split == "train" or split in capacity}
    empty = [split for split, rows in splits.items() if len(rows) == 0]
    require(
        not empty,
        f"{name}: no pairs for {' and '.join(empty)}: the {len(pairs)} pairs form {len(sizes)} groups without an image "
        f"or text in common, the largest of {sizes.max()} pairs. Give other shares, data.draw.val and "
        "data.draw.test, or a table for each split, data.splits.train=FILE and so on",
    )
    return splits
