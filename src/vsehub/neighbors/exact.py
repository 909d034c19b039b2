"""Indexes in torch: exact inner-product search, and search by a similarity that is not an inner product of vectors.

The latter scores every entry (`ScoredIndex`) or a shortlist of them (`ShortlistIndex`).
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import matrix
from vsehub.neighbors.vectors import products
from vsehub.sets import Encoding, Sets
from vsehub.types import Similarity

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
MEASURED_QUERIES = 64


class ExactIndex:
    """Inner-product search over (M, D) vectors on the device they are on."""

    name = "exact"

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        self.vectors, self._products = vectors, products(vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first."""
        found = [
            self._products(block, None).topk(k, dim=1) for block in queries.split(max(1, BLOCK_ELEMENTS // len(self)))
        ]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])


class ScoredIndex:
    """M encoded entries, all scored for every query.

    entries: (M, D) or M sets. side: whether the entries are "images" or "texts"; the queries are the other side.
    """

    name = "exact"

    def __init__(self, entries: Encoding, similarity: Similarity, side: str):
        self.entries, self.similarity, self.side = entries.detach(), similarity, side

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Encoding, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query, largest similarity first."""
        found = [scores.topk(k, dim=1) for scores in self._blocks(queries)]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])

    def means(self, queries: Encoding) -> Tensor:
        """The mean similarity (Q,) of each query to all entries."""
        return torch.cat([scores.mean(dim=1) for scores in self._blocks(queries)])

    def _blocks(self, queries: Encoding) -> Iterator[Tensor]:
        """The scores (b, M) of some queries at a time."""
        rows = max(1, BLOCK_ELEMENTS // len(self))
        for first in range(0, len(queries), rows):
            some = queries[first : first + rows]
            if self.side == "texts":
                yield self.similarity(some, self.entries)
            else:
                yield self.similarity(self.entries, some).T


class ShortlistIndex:
    """An index of M encoded sets: finds those with the nearest mean vectors, and scores these exactly.

    shortlist: how many entries are scored per neighbour. make_index: unit vectors (M, D) -> their index.
    """

    name = "shortlists by mean vectors, scored exactly"

    def __init__(
        self, entries: Sets, similarity: Similarity, side: str, shortlist: int, make_index: Callable[[Tensor], Any]
    ):
        self.entries, self.similarity, self.side, self.shortlist = entries.detach(), similarity, side, shortlist
        self._means = make_index(_mean_directions(entries))

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Sets, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k), largest first: the k best of each query's shortlist."""
        candidates = self._means.search(_mean_directions(queries), min(len(self), k * self.shortlist))[1]
        best = self.similarity.candidates(queries, self.entries, candidates, self.side).topk(k, dim=1)
        return best.values, candidates.gather(1, best.indices)

    def recall(self, queries: Any, k: int) -> float:
        """The share of the exact k nearest that a search finds, for at most 64 of the queries."""
        queries = queries[:MEASURED_QUERIES]
        exact = ScoredIndex(self.entries, self.similarity, self.side).search(queries, k)[1]
        found = self.search(queries, k)[1]
        return float((exact[:, :, None] == found[:, None, :]).any(dim=2).float().mean())


def _mean_directions(sets: Sets) -> Tensor:
    """The mean of each set's unit vectors, as a unit vector: (N, D)."""
    return F.normalize(Sets(F.normalize(sets.vectors.detach(), dim=1), sets.lengths).means(), dim=1)
