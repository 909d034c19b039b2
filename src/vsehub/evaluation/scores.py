"""Scores of both directions of an encoded split, block by block, from one product for both."""

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms
from vsehub.metrics.ranks import CACHED_ELEMENTS
from vsehub.models.encode import EncodedSplit
from vsehub.neighbors.vectors import NARROW, padded_rows, products
from vsehub.positives import Positives
from vsehub.types import Similarity

DIRECTIONS = ("i2t", "t2i")
BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
STRIP = 512  # rows of the matrix whose numbers are transposed at a time
MATRIX_ELEMENTS = 2**27  # 512 MB: COCO's 5,000 images with 25,000 texts


class DirectedScores:
    """Scores of Q queries against M items, of R reference queries against the same items, and of reference items.

    queries, items, reference, reference_items: encodings, vectors where the similarity is an inner product. For a split
    that is its own reference, the last two are the objects queries and items, so that scores are computed once. pairs:
    queries and items (P,), (P,) of the true pairs. score: encodings of queries and of items -> their scores. matrix:
    returns all scores (Q, M), which must not be changed; None where they are too many to be in memory: they are then
    computed block by block, each time.
    """

    def __init__(
        self,
        queries: Any,
        items: Any,
        reference: Any,
        reference_items: Any,
        pairs: tuple[Tensor, Tensor],
        similarity: Similarity,
        score: Callable[[Any, Any], Tensor],
        matrix: Callable[[], Tensor] | None,
    ):
        self.queries, self.items, self.reference, self._reference_items = queries, items, reference, reference_items
        self.positives = Positives.from_pairs(*pairs, len(queries), len(items))
        self.similarity, self._score, self._matrix = similarity, score, matrix
        self._single_blocks: dict[str, Tensor] = {}

    def rows(self, index: Tensor | slice) -> Tensor:
        """The scores (b, M) of some queries with all items."""
        return self._score(self.queries[index], self.items) if self._matrix is None else self._matrix()[index]

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first query, scores (b, M) with all items) over all queries in order; a row is contiguous in memory."""
        if self._matrix is not None:
            return _row_blocks(self._matrix())
        size = max(1, BLOCK_ELEMENTS // len(self.items))
        return ((first, self.rows(slice(first, first + size))) for first in range(0, len(self.queries), size))

    def columns(self) -> Iterator[Tensor]:
        """Blocks (R, m) of the reference queries' scores over all items in order; columns are contiguous."""
        if self._matrix is not None and self.reference is self.queries:
            return (block.T for _, block in _row_blocks(self._matrix().T))
        return self._column_blocks("reference", self.reference, self.items)

    def fit(self, criterion: Criterion) -> Terms:
        """The item terms of the criterion's correction.

        Raises InputError where it takes scores of items with items and the similarity has none.
        """
        require_item_scores(criterion, self.similarity)
        correction, reference_item_scores = criterion.correction, None
        if correction.reference_items_as == "rows":
            reference_item_scores = partial(self._column_blocks, "rows", self._reference_items, self.items)
        elif correction.reference_items_as == "columns" and self.reference is not self.queries:
            reference_item_scores = partial(self._column_blocks, "columns", self.reference, self._reference_items)
        return correction.fit(self.columns, reference_item_scores)

    def _column_blocks(self, name: str, rows: Any, columns: Any) -> Iterator[Tensor]:
        """Scores (n, m) of `rows`, block by block over the columns. A single block is stored under `name`."""
        size = max(1, BLOCK_ELEMENTS // len(rows))
        if len(columns) > size:
            return (self._columns(rows, columns[first : first + size]) for first in range(0, len(columns), size))
        if name not in self._single_blocks:
            self._single_blocks[name] = self._columns(rows, columns)
        return iter([self._single_blocks[name]])

    def _columns(self, rows: Any, columns: Any) -> Tensor:
        """Scores of rows with columns. Inner products are computed the other way round, so that equal rows are tied."""
        return self._score(columns, rows).T if self.similarity.inner_product else self._score(rows, columns)


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
    inner = similarity.inner_product
    vectors = similarity.vectors if inner else lambda encoding: encoding
    images, texts = vectors(split.images), vectors(split.texts)
    fitted_on = (images, texts) if reference is split else (vectors(reference.images), vectors(reference.texts))
    image, text = split.pairs.T

    @cache
    def matrix() -> Tensor:
        """All scores (I, T); equal images are tied for every text, equal texts for every image."""
        if not inner:
            return similarity(images, texts)
        # `products` pads few items with zeros so that copies are tied. Images are the items of the other direction.
        return products(texts)(padded_rows(NARROW, images), None)[: len(images)]

    def score_images(images: Any, texts: Any) -> Tensor:
        return products(texts)(images, None) if inner else similarity(images, texts)

    def score_texts(texts: Any, images: Any) -> Tensor:
        return products(images)(texts, None) if inner else similarity(images, texts).T

    in_memory = len(images) * len(texts) <= MATRIX_ELEMENTS
    image_matrix = matrix if in_memory else None
    text_matrix = (lambda: matrix().T) if in_memory else None
    return {
        "i2t": DirectedScores(images, texts, *fitted_on, (image, text), similarity, score_images, image_matrix),
        "t2i": DirectedScores(texts, images, *fitted_on[::-1], (text, image), similarity, score_texts, text_matrix),
    }
