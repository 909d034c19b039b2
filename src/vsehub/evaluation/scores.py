"""Scores of one direction of an encoded split, block by block, without holding the whole matrix."""

from collections.abc import Callable, Iterator
from functools import cache, cached_property, partial

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.evaluation.encode import EncodedSplit
from vsehub.metrics.positives import Positives
from vsehub.neighbors.rounded import products, rounded_products
from vsehub.sets import Rows
from vsehub.types import Similarity

DIRECTIONS = ("i2t", "t2i")
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
MATRIX_ELEMENTS = 2**27  # 512 MB: COCO's 5,000 images with 25,000 texts


class DirectedScores:
    """Scores of Q queries against M items, of R reference queries against the same items, and of reference items.

    reference: the split that the reference queries and items come from; the split itself: its own. direction: "i2t" has
    images as queries and texts as items, "t2i" the reverse. Similarities that are inner products are computed from
    their vectors, which are made once. Scores that fit into one block are kept for the next criterion. matrix: a
    function that returns all scores (I, T) of the split, for similarities that are expensive; None computes scores each
    time. bf16: `rows` and `blocks` are the products of vectors rounded to bfloat16; the scores from which
    criteria are fitted are always float32.
    """

    def __init__(
        self,
        split: EncodedSplit,
        direction: str,
        similarity: Similarity,
        reference: EncodedSplit,
        matrix: Callable[[], Tensor] | None = None,
        bf16: bool = False,
    ):
        self.direction, self.similarity = direction, similarity
        self._inner, self._matrix, self._own = similarity.inner_product, matrix, reference is split
        self._reference_split = reference
        self.queries, self.items = (self._vectors(side) for side in self._sides(split))
        self.reference = self.queries if self._own else self._vectors(self._sides(reference)[0])
        self._kept: dict[str, Tensor] = {}
        self._rounded = rounded_products(_tensor(self.items)) if bf16 else None
        self.positives = _positives(split, direction)

    @property
    def rounded(self) -> bool:
        """Whether `rows` and `blocks` are products of rounded vectors."""
        return self._rounded is not None

    def rows(self, index: Tensor | slice) -> Tensor:
        """The scores (b, M) of some queries with all items."""
        if self._rounded is not None:
            return self._rounded(_tensor(self.queries[index]), None)
        return self.float32_rows(index)

    def float32_rows(self, index: Tensor | slice) -> Tensor:
        """The scores of `rows`, never rounded."""
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
        matrix = self._matrix
        if matrix is not None and self._own:
            # The matrix is in memory already: smaller blocks would save nothing.
            yield self._once("columns", lambda: self._whole(matrix).T.contiguous().T)
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
    def _bank(self) -> Rows:
        """The reference items."""
        return self.items if self._own else self._vectors(self._sides(self._reference_split)[1])

    def _column_blocks(self, name: str, rows: Rows, columns: Rows) -> Iterator[Tensor]:
        """Scores (n, m) of `rows`, block by block over the columns; a single block is stored under `name`."""
        size = max(1, BLOCK_ELEMENTS // len(rows))
        if len(columns) <= size:
            yield self._once(name, lambda: self._columns(rows, columns))
            return
        for first in range(0, len(columns), size):
            yield self._columns(rows, columns[first : first + size])

    def _whole(self, matrix: Callable[[], Tensor]) -> Tensor:
        return matrix() if self.direction == "i2t" else matrix().T

    def _columns(self, rows: Rows, columns: Rows) -> Tensor:
        return _products(columns, rows).T if self._inner else self._between(rows, columns)

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


def require_item_scores(criterion: Criterion, similarity: Similarity) -> None:
    """Raise InputError where a criterion takes scores of items with items and the similarity is no inner product."""
    require(
        criterion.correction.reference_items_as != "rows" or similarity.inner_product,
        f"criterion: {type(criterion.correction).__name__} takes the similarity of items with items, which only an "
        f"inner product of vectors gives; {type(similarity).__name__} is none. Choose a criterion that takes scores of "
        "queries alone, e.g. is",
    )


def _products(queries: Rows, items: Rows) -> Tensor:
    return products(_tensor(items))(_tensor(queries), None)


def _tensor(vectors: Rows) -> Tensor:
    assert isinstance(vectors, Tensor)  # as `Similarity.vectors` gives them
    return vectors


def both_directions(
    split: EncodedSplit, similarity: Similarity, reference: EncodedSplit, bf16: bool = False
) -> dict[str, DirectedScores]:
    """The "i2t" and "t2i" scores of a split; without inner products they are computed once for both directions."""
    costly = not similarity.inner_product and len(split.images) * len(split.texts) <= MATRIX_ELEMENTS
    matrix = cache(lambda: similarity(split.images, split.texts)) if costly else None
    return {side: DirectedScores(split, side, similarity, reference, matrix, bf16) for side in DIRECTIONS}


def _positives(split: EncodedSplit, direction: str) -> Positives:
    sizes = len(split.images), len(split.texts)
    if split.pairs is not None:
        query, item = (0, 1) if direction == "i2t" else (1, 0)
        return Positives.from_pairs(split.pairs[:, query], split.pairs[:, item], sizes[query], sizes[item])
    ids = torch.arange(sizes[0], device=split.image_index.device), split.image_index
    return Positives.from_ids(*(ids if direction == "i2t" else ids[::-1]))
