"""The scores of one direction of an encoded split, given out in blocks: never the whole matrix unless asked."""

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from vsehub.evaluation.encode import EncodedSplit
from vsehub.metrics.ranks import Positives
from vsehub.types import Similarity

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time


class DirectedScores:
    """Scores of Q queries against M items, and of R reference queries against the same items.

    direction: "i2t" has images as queries and texts as items, "t2i" the reverse. Similarities that are inner products
    are computed from their vectors, made once. What fits into one block is kept, for the next criterion to be measured.
    """

    def __init__(self, split: EncodedSplit, direction: str, similarity: Similarity, reference: EncodedSplit):
        self.direction, self.similarity = direction, similarity
        self._inner = hasattr(similarity, "vectors")
        self.queries, self.items = (self._vectors(side) for side in self._sides(split))
        self.reference = self.queries if reference is split else self._vectors(self._sides(reference)[0])
        image_ids = torch.arange(len(split.images), device=split.images.device)
        ids = image_ids, split.image_index
        self._kept: dict[str, Tensor] = {}
        self.positives = Positives.from_ids(*(ids if direction == "i2t" else ids[::-1]))

    def rows(self, index: Tensor | slice) -> Tensor:
        """Whole rows (b, M) of some queries."""
        return self._between(self.queries[index], self.items)

    def blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(first query, whole rows (b, M)) over all queries in order."""
        size = max(1, BLOCK_ELEMENTS // len(self.items))
        if len(self.queries) <= size:
            yield 0, self._once("rows", lambda: self.rows(slice(None)))
            return
        for first in range(0, len(self.queries), size):
            yield first, self.rows(slice(first, first + size))

    def columns(self) -> Iterator[Tensor]:
        """Blocks (R, m) of the reference queries' scores over all items in order; a column is one stretch of memory."""
        size = max(1, BLOCK_ELEMENTS // len(self.reference))
        if len(self.items) <= size:
            yield self._once("columns", lambda: self._columns(self.items))
            return
        for block in self.items.split(size):
            yield self._columns(block)

    def _columns(self, items: Tensor) -> Tensor:
        return (items @ self.reference.T).T if self._inner else self._between(self.reference, items)

    def _once(self, name: str, make: Callable[[], Tensor]) -> Tensor:
        if name not in self._kept:
            self._kept[name] = make()
        return self._kept[name]

    def _between(self, queries: Tensor, items: Tensor) -> Tensor:
        if self._inner:
            return queries @ items.T
        return self.similarity(queries, items) if self.direction == "i2t" else self.similarity(items, queries).T

    def _sides(self, split: EncodedSplit) -> tuple[Tensor, Tensor]:
        return (split.images, split.texts) if self.direction == "i2t" else (split.texts, split.images)

    def _vectors(self, encoded: Tensor) -> Tensor:
        return self.similarity.vectors(encoded) if self._inner else encoded
