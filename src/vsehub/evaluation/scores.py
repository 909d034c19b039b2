"""Scores of one direction of an encoded split, block by block, without holding the whole matrix."""

from collections.abc import Callable, Iterator
from functools import cache

import torch
from torch import Tensor

from vsehub.evaluation.encode import EncodedSplit
from vsehub.metrics.positives import Positives
from vsehub.sets import Rows
from vsehub.types import Similarity

DIRECTIONS = ("i2t", "t2i")
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
MATRIX_ELEMENTS = 2**27  # 512 MB: COCO's 5,000 images with 25,000 texts


class DirectedScores:
    """Scores of Q queries against M items, and of R reference queries against the same items.

    direction: "i2t" has images as queries and texts as items, "t2i" the reverse. Similarities that are inner products
    are computed from their vectors, which are made once. Scores that fit into one block are kept for the next
    criterion. matrix: a function that returns all scores (I, T) of the split, for similarities that are expensive; None
    computes scores each time.
    """

    def __init__(
        self,
        split: EncodedSplit,
        direction: str,
        similarity: Similarity,
        reference: EncodedSplit,
        matrix: Callable[[], Tensor] | None = None,
    ):
        self.direction, self.similarity = direction, similarity
        self._inner, self._matrix, self._own = similarity.inner_product, matrix, reference is split
        self.queries, self.items = (self._vectors(side) for side in self._sides(split))
        self.reference = self.queries if self._own else self._vectors(self._sides(reference)[0])
        self._kept: dict[str, Tensor] = {}
        self.positives = _positives(split, direction)

    def rows(self, index: Tensor | slice) -> Tensor:
        """The scores (b, M) of some queries with all items."""
        if self._matrix is not None:
            return self._whole(self._matrix)[index]
        return self._between(self.queries[index], self.items)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first query, scores (b, M) with all items) over all queries in order."""
        size = max(1, BLOCK_ELEMENTS // len(self.items))
        if len(self.queries) <= size:
            yield 0, self._once("rows", lambda: self.rows(slice(None)))
            return
        for first in range(0, len(self.queries), size):
            yield first, self.rows(slice(first, first + size))

    def columns(self) -> Iterator[Tensor]:
        """Blocks (R, m) of the reference queries' scores over all items in order; columns are contiguous."""
        size = max(1, BLOCK_ELEMENTS // len(self.reference))
        matrix = self._matrix
        if matrix is not None and self._own:
            # The matrix is held already, so no smaller blocks are needed.
            yield self._once("columns", lambda: self._whole(matrix).T.contiguous().T)
            return
        if len(self.items) <= size:
            yield self._once("columns", lambda: self._columns(self.items))
            return
        for first in range(0, len(self.items), size):
            yield self._columns(self.items[first : first + size])

    def _whole(self, matrix: Callable[[], Tensor]) -> Tensor:
        return matrix() if self.direction == "i2t" else matrix().T

    def _columns(self, items: Rows) -> Tensor:
        return _products(items, self.reference).T if self._inner else self._between(self.reference, items)

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _between(self, queries: Rows, items: Rows) -> Tensor:
        if self._inner:
            return _products(queries, items)
        return self.similarity(queries, items) if self.direction == "i2t" else self.similarity(items, queries).T

    def _sides(self, split: EncodedSplit) -> tuple[Rows, Rows]:
        return (split.images, split.texts) if self.direction == "i2t" else (split.texts, split.images)

    def _vectors(self, encoded: Rows) -> Rows:
        return self.similarity.vectors(encoded) if self._inner else encoded


def _products(queries: Rows, items: Rows) -> Tensor:
    assert isinstance(queries, Tensor)  # both are as `Similarity.vectors` gives them
    assert isinstance(items, Tensor)
    return queries @ items.T


def both_directions(split: EncodedSplit, similarity: Similarity, reference: EncodedSplit) -> dict[str, DirectedScores]:
    """The "i2t" and "t2i" scores of a split; without inner products they are computed once for both directions."""
    costly = not similarity.inner_product and len(split.images) * len(split.texts) <= MATRIX_ELEMENTS
    matrix = cache(lambda: similarity(split.images, split.texts)) if costly else None
    return {side: DirectedScores(split, side, similarity, reference, matrix) for side in DIRECTIONS}


def _positives(split: EncodedSplit, direction: str) -> Positives:
    sizes = len(split.images), len(split.texts)
    if split.pairs is not None:
        query, item = (0, 1) if direction == "i2t" else (1, 0)
        return Positives.from_pairs(split.pairs[:, query], split.pairs[:, item], sizes[query], sizes[item])
    ids = torch.arange(sizes[0], device=split.image_index.device), split.image_index
    return Positives.from_ids(*(ids if direction == "i2t" else ids[::-1]))
