"""Scores of both directions of an encoded split, block by block, from one product for both."""

from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.evaluation.encode import EncodedSplit
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import CACHED_ELEMENTS
from vsehub.neighbors.vectors import NARROW, at_least, products
from vsehub.types import Similarity

DIRECTIONS = ("i2t", "t2i")
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
STRIP = 512  # rows of the matrix whose numbers are transposed at a time
MATRIX_ELEMENTS = 2**27  # 512 MB: COCO's 5,000 images with 25,000 texts


class DirectedScores:
    """Scores of Q queries against M items, of R reference queries against the same items, and of reference items.

    direction: "i2t" has images as queries and texts as items, "t2i" the reverse. sides, reference: images and texts
    whose scores are taken, vectors where the similarity is an inner product; the same object for a split that is its
    own reference. pairs: (2, P) image and text of all pairs. matrix: returns all scores (I, T), which must not be
    changed; None where they are too many to be in memory: they are then computed block by block, each time.
    """

    def __init__(
        self,
        direction: str,
        similarity: Similarity,
        sides: Sequence[Any],
        reference: Sequence[Any],
        pairs: Tensor,
        matrix: Callable[[], Tensor] | None,
    ):
        self._turned = direction == "t2i"
        step = -1 if self._turned else 1
        (self.queries, self.items), (self.reference, self._bank) = sides[::step], reference[::step]
        query, item = list(pairs)[::step]
        self.positives = Positives.from_pairs(query, item, len(self.queries), len(self.items))
        self.similarity, self._matrix, self._inner = similarity, matrix, similarity.inner_product
        self._kept: dict[tuple[int, int], Tensor] = {}

    def rows(self, index: Tensor | slice) -> Tensor:
        """The scores (b, M) of some queries with all items."""
        return self._between(self.queries[index], self.items) if self._matrix is None else self._all_rows()[index]

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first query, scores (b, M) with all items) over all queries in order; a row is contiguous in memory."""
        if self._matrix is not None:
            return _row_blocks(self._all_rows())
        size = max(1, BLOCK_ELEMENTS // len(self.items))
        return ((first, self.rows(slice(first, first + size))) for first in range(0, len(self.queries), size))

    def columns(self) -> Iterator[Tensor]:
        """Blocks (R, m) of the reference queries' scores over all items in order; columns are contiguous."""
        if self._matrix is not None and self.reference is self.queries:
            return (block.T for _, block in _row_blocks(self._all_rows().T))
        return self._column_blocks(self.reference, self.items)

    def fit(self, criterion: Criterion) -> Terms:
        """The item terms of the criterion's correction.

        Raises InputError where it takes scores of items with items and the similarity has none.
        """
        require_item_scores(criterion, self.similarity)
        correction, further = criterion.correction, None
        if correction.reference_items_as == "rows":
            further = partial(self._column_blocks, self._bank, self.items)
        elif correction.reference_items_as == "columns" and self.reference is not self.queries:
            further = partial(self._column_blocks, self.reference, self._bank)
        return correction.fit(self.columns, further)

    def _column_blocks(self, rows: Any, columns: Any) -> Iterator[Tensor]:
        """Scores (n, m) of `rows`, block by block over the columns; a single block is kept."""
        size, key = max(1, BLOCK_ELEMENTS // len(rows)), (id(rows), id(columns))
        if len(columns) > size:
            return (self._columns(rows, columns[first : first + size]) for first in range(0, len(columns), size))
        if key not in self._kept:
            self._kept[key] = self._columns(rows, columns)
        return iter([self._kept[key]])

    def _all_rows(self) -> Tensor:
        """All scores (Q, M), where they may be in memory."""
        return self._matrix().T if self._turned else self._matrix()  # type: ignore[misc]  # not asked where it is None

    def _columns(self, rows: Any, columns: Any) -> Tensor:
        """As `_between`, with equal rows instead of equal columns tied."""
        return self._between(columns, rows).T if self._inner else self._between(rows, columns)

    def _between(self, queries: Any, items: Any) -> Tensor:
        if self._inner:
            return products(items)(queries, None)
        return self.similarity(items, queries).T if self._turned else self.similarity(queries, items)


def require_item_scores(criterion: Criterion, similarity: Similarity) -> None:
    """Raise InputError if a criterion needs item-item scores and the similarity is not an inner product."""
    require(
        criterion.correction.reference_items_as != "rows" or similarity.inner_product,
        f"criterion: {type(criterion.correction).__name__} takes the similarity of items with items, which only an "
        f"inner product of vectors has, unlike {type(similarity).__name__}. Choose a criterion that takes scores of "
        "queries only, e.g. is",
    )


def _row_blocks(scores: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(first row, block (b, M)) over all rows of a matrix or of a transposed one; a row of a block is contiguous.

    A block fits into a CPU's cache. Where it is transposed, a few rows of the matrix are read at a time: each number of
    a row of the block lies on another page of memory.
    """
    elements = min(BLOCK_ELEMENTS, CACHED_ELEMENTS) if scores.device.type == "cpu" else BLOCK_ELEMENTS
    size = max(1, elements // scores.shape[1])
    for first, block in zip(range(0, len(scores), size), scores.split(size), strict=True):
        if block.stride(1) != 1:
            block = torch.cat([strip.contiguous() for strip in block.split(STRIP, dim=1)], dim=1)
        yield first, block


def both_directions(split: EncodedSplit, similarity: Similarity, reference: EncodedSplit) -> dict[str, DirectedScores]:
    """The "i2t" and "t2i" scores of a split, from one product for both where it may be in memory."""
    vectors = similarity.vectors if similarity.inner_product else lambda encoding: encoding
    sides = vectors(split.images), vectors(split.texts)
    others = sides if reference is split else (vectors(reference.images), vectors(reference.texts))

    @cache
    def matrix() -> Tensor:
        """All scores (I, T); equal images are tied for every text, equal texts for every image."""
        if not similarity.inner_product:
            return similarity(*sides)
        # `products` ties equal texts; the images, the items of the other direction, need as many rows.
        return products(sides[1])(at_least(NARROW, sides[0]), None)[: len(sides[0])]

    whole = matrix if len(sides[0]) * len(sides[1]) <= MATRIX_ELEMENTS else None
    return {side: DirectedScores(side, similarity, sides, others, split.pairs.T, whole) for side in DIRECTIONS}
