"""Precomputed scores instead of vectors: from a cross-encoder, SCAN, or any other model that compares pairs.

A row of scores takes the place of a query, and `UnitVectors` take that of the items: the inner product of a row with
the m-th unit vector is its m-th score. Every search among vectors thus accepts precomputed scores, and computes no
product.
"""

from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from vsehub.checks import fail
from vsehub.neighbors.exact import Products, products
from vsehub.neighbors.vectors import Moved, VectorSource


@runtime_checkable
class GivenScores(VectorSource, Protocol):
    """Scores (N, M) of N queries with M items, in the place of the queries' vectors.

    columns(start, stop): the scores (N, stop - start) of all queries with some items.
    """

    def columns(self, start: int, stop: int) -> Tensor: ...


class UnitVectors:
    """The M items of precomputed scores: item m is the m-th unit vector (M,)."""

    def __init__(self, items: int):
        self.shape = (items, items)

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Tensor:
        """Never needed: raises InputError, since what compares items with each other needs their vectors."""
        fail("scores of queries and items do not say how items compare with each other; give vectors")


class MovedScores(Moved):
    """Precomputed scores whose blocks are on another device."""

    def __init__(self, scores: GivenScores, device: torch.device):
        super().__init__(scores, device)
        self._scores = scores

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` - 1 on the device."""
        return self._scores.columns(start, stop).to(self._device)


def moved(vectors: VectorSource, device: torch.device) -> VectorSource:
    """Vectors, or precomputed scores, whose blocks are on the device."""
    return MovedScores(vectors, device) if isinstance(vectors, GivenScores) else Moved(vectors, device)


def scoring(items: VectorSource, start: int, stop: int, like: Tensor) -> Products:
    """(queries (b, D), memory or None) -> their scores (b, m) with items `start` to `stop` - 1, which are read once.

    like: of the type and on the device of the queries. Precomputed scores are only copied.
    """
    if isinstance(items, UnitVectors):
        return lambda rows, out: rows[:, start:stop].contiguous() if out is None else out.copy_(rows[:, start:stop])
    return products(items.rows(start, stop).to(like))
