"""Scores of one direction of an encoded split, block by block, from one product for both directions."""

from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.evaluation.encode import EncodedSplit
from vsehub.metrics.positives import Positives
from vsehub.metrics.ranks import CACHED_ELEMENTS
from vsehub.neighbors.vectors import NARROW, at_least, products
from vsehub.sets import Rows
from vsehub.types import Similarity

DIRECTIONS = ("i2t", "t2i")
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
STRIP = 512  # rows of the matrix whose numbers are transposed at a time
MATRIX_ELEMENTS = 2**27  # 512 MB: COCO's 5,000 images with 25,000 texts


class SharedScores:
    """The vectors and all scores (I, T) of a split, shared by both directions and computed once, when needed."""

    def __init__(self, split: EncodedSplit, similarity: Similarity):
        self._split, self._similarity = split, similarity
        self._vectors: dict[int, tuple[Rows, Rows]] = {}  # of an encoding's id, the encoding and its vectors
        self._matrix: Tensor | None = None
        self._size = len(split.images) * len(split.texts)

    @property
    def fits(self) -> bool:
        """True if the whole matrix may be in memory."""
        return self._size <= MATRIX_ELEMENTS

    def vectors(self, encoded: Rows) -> Any:
        """The vectors of an encoding whose inner products are the scores; the encoding itself if the scores are not
        inner products.
        """
        if not self._similarity.inner_product:
            return encoded
        if id(encoded) not in self._vectors:
            self._vectors[id(encoded)] = encoded, self._similarity.vectors(encoded)
        return self._vectors[id(encoded)][1]

    def matrix(self) -> Tensor:
        """All scores, which must not be changed. Equal images are tied for every text, equal texts for every image."""
        if self._matrix is None:
            images, texts = self.vectors(self._split.images), self.vectors(self._split.texts)
            if self._similarity.inner_product:
                # `products` ties equal texts; the images, the items of the other direction, need as many rows.
                self._matrix = products(texts)(at_least(NARROW, images), None)[: len(images)]
            else:
                self._matrix = self._similarity(images, texts)
        return self._matrix

    def release(self) -> None:
        """Free the matrix, unless it is small, or expensive because it is not an inner product."""
        if self._similarity.inner_product and self._size > BLOCK_ELEMENTS:
            self._matrix = None


class DirectedScores:
    """Scores of Q queries against M items, of R reference queries against the same items, and of reference items.

    reference: the split that the reference queries and items come from; the split itself: its own. direction: "i2t" has
    images as queries and texts as items, "t2i" the reverse. shared: of the same split and similarity, for both
    directions; None: for this one alone. Up to `MATRIX_ELEMENTS` scores are computed once, others block by block, each
    time.
    """

    def __init__(
        self,
        split: EncodedSplit,
        direction: str,
        similarity: Similarity,
        reference: EncodedSplit,
        shared: SharedScores | None = None,
    ):
        self.direction, self.similarity = direction, similarity
        self.shared = SharedScores(split, similarity) if shared is None else shared
        self._inner, self._own, self._reference_split = similarity.inner_product, reference is split, reference
        self.queries, self.items = (self.shared.vectors(side) for side in self._sides(split))
        self.reference = self.queries if self._own else self.shared.vectors(self._sides(reference)[0])
        self._kept: dict[str, Tensor] = {}
        query, item = split.all_pairs.T if direction == "i2t" else split.all_pairs.T.flip(0)
        self.positives = Positives.from_pairs(query, item, len(self.queries), len(self.items))

    def rows(self, index: Tensor | slice) -> Tensor:
        """The scores (b, M) of some queries with all items."""
        if self.shared.fits:
            return self._all_rows()[index]
        return self._between(self.queries[index], self.items)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first query, scores (b, M) with all items) over all queries in order; a row is contiguous in memory."""
        if self.shared.fits:
            yield from _row_blocks(self._all_rows())
            return
        size = max(1, BLOCK_ELEMENTS // len(self.items))
        for first in range(0, len(self.queries), size):
            yield first, self.rows(slice(first, first + size))

    def columns(self) -> Iterator[Tensor]:
        """Blocks (R, m) of the reference queries' scores over all items in order; columns are contiguous."""
        if self.shared.fits and self._own:
            yield from (block.T for _, block in _row_blocks(self._all_rows().T))
            return
        yield from self._column_blocks("columns", self.reference, self.items)

    def fit(self, criterion: Criterion) -> Terms:
        """The item terms of the criterion's correction.

        Raises InputError where it takes scores of items with items and the similarity has none.
        """
        require_item_scores(criterion, self.similarity)
        correction, further = criterion.correction, None
        if correction.reference_items_as == "rows":
            further = partial(self._column_blocks, "item rows", self._bank, self.items)
        elif correction.reference_items_as == "columns" and not self._own:
            further = partial(self._column_blocks, "item columns", self.reference, self._bank)
        return correction.fit(self.columns, further)

    @cached_property
    def _bank(self) -> Any:
        """The reference items."""
        return self.items if self._own else self.shared.vectors(self._sides(self._reference_split)[1])

    def _column_blocks(self, name: str, rows: Any, columns: Any) -> Iterator[Tensor]:
        """Scores (n, m) of `rows`, block by block over the columns; a single block is stored under `name`."""
        size = max(1, BLOCK_ELEMENTS // len(rows))
        if len(columns) <= size:
            if name not in self._kept:
                self._kept[name] = self._columns(rows, columns)
            yield self._kept[name]
            return
        for first in range(0, len(columns), size):
            yield self._columns(rows, columns[first : first + size])

    def _all_rows(self) -> Tensor:
        """All scores (Q, M), where they may be held."""
        return self.shared.matrix() if self.direction == "i2t" else self.shared.matrix().T

    def _columns(self, rows: Any, columns: Any) -> Tensor:
        return products(rows)(columns, None).T if self._inner else self._between(rows, columns)

    def _between(self, queries: Any, items: Any) -> Tensor:
        if self._inner:
            return products(items)(queries, None)
        return self.similarity(queries, items) if self.direction == "i2t" else self.similarity(items, queries).T

    def _sides(self, split: EncodedSplit) -> tuple[Rows, Rows]:
        return (split.images, split.texts) if self.direction == "i2t" else (split.texts, split.images)


def require_item_scores(criterion: Criterion, similarity: Similarity) -> None:
    """Raise InputError if a criterion needs item-item scores and the similarity is not an inner product."""
    require(
        criterion.correction.reference_items_as != "rows" or similarity.inner_product,
        f"criterion: {type(criterion.correction).__name__} takes the similarity of items with items, which only an "
        f"inner product of vectors gives; {type(similarity).__name__} is none. Choose a criterion that takes scores of "
        "queries alone, e.g. is",
    )


def _row_blocks(scores: Tensor) -> Iterator[tuple[int, Tensor]]:
    """(first row, block (b, M)) over all rows of a matrix or of a transposed one; a row of a block is contiguous.

    A block fits into a CPU's cache. Where it is transposed, a few rows of the matrix are read at a time: each number of
    a row of the block lies on another page of memory.
    """
    cached = scores.device.type == "cpu"
    size = max(1, (min(BLOCK_ELEMENTS, CACHED_ELEMENTS) if cached else BLOCK_ELEMENTS) // scores.shape[1])
    for first in range(0, len(scores), size):
        block = scores[first : first + size]
        if block.stride(1) != 1:
            rows = block.new_empty(block.shape)
            strip = STRIP if cached else block.shape[1]
            for to, part in zip(rows.split(strip, dim=1), block.split(strip, dim=1), strict=True):
                to.copy_(part)
            block = rows
        yield first, block


def both_directions(split: EncodedSplit, similarity: Similarity, reference: EncodedSplit) -> dict[str, DirectedScores]:
    """The "i2t" and "t2i" scores of a split, from one product for both where it may be held."""
    shared = SharedScores(split, similarity)
    return {side: DirectedScores(split, side, similarity, reference, shared) for side in DIRECTIONS}
