"""Indexes in torch: exact inner-product search, and search by a similarity that is not an inner product of vectors.

The latter scores every entry (`ScoredIndex`) or a shortlist of them (`ShortlistIndex`).
"""

from collections.abc import Callable
from typing import Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import matrix, require
from vsehub.sets import Encoding, Sets
from vsehub.types import Similarity

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time
# A BLAS multiplies fewer columns or rows than these by other routines, which add up the products in another order.
NARROW, LOW = 16, 8
MEASURED_QUERIES = 64
# (queries (b, D), memory or None) -> scores (b, m)
Products = Callable[[Tensor, Tensor | None], Tensor]


def products(items: Tensor) -> Products:
    """(queries (b, D), memory or None) -> their inner products (b, m) with items (m, D).

    The score of an item does not depend on the items beside it, so that copies are tied in every block: beside few
    items and few queries stand zeros.
    """
    count, factor = len(items), at_least(NARROW, items).T

    def scored(queries: Tensor, out: Tensor | None) -> Tensor:
        if count >= NARROW and len(queries) >= LOW:
            return torch.mm(queries, factor, out=out)
        scores = torch.mm(at_least(LOW, queries), factor)[: len(queries), :count]
        return scores if out is None else out.copy_(scores)

    return scored


def at_least(count: int, rows: Tensor) -> Tensor:
    """Rows (n, D), with rows of zeros below where n is less than count."""
    missing = count - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


class Index(Protocol):
    """Nearest-neighbour search over M entries: `search(queries, k)` gives similarities and positions (Q, k)."""

    def __len__(self) -> int: ...

    def search(self, queries: Any, k: int) -> tuple[Tensor, Tensor]: ...


class ExactIndex:
    """Inner-product search over (M, D) vectors on the device they are on."""

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        self.vectors, self._products = vectors, products(vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        Raises InputError if dimensions differ or k exceeds the vectors.
        """
        check_query(queries, self.vectors.shape[1], k, len(self))
        found = [
            self._products(block, None).topk(k, dim=1) for block in queries.split(max(1, BLOCK_ELEMENTS // len(self)))
        ]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])


class ScoredIndex:
    """M encoded entries, all scored for every query.

    entries: (M, D) or M sets. side: whether the entries are "images" or "texts"; the queries are the other side.
    """

    def __init__(self, entries: Encoding, similarity: Similarity, side: str):
        self.entries, self.similarity, self.side = entries.detach(), similarity, side

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Encoding, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query, largest similarity first.

        Raises InputError if k exceeds the entries.
        """
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of entries in the index")
        rows = max(1, BLOCK_ELEMENTS // len(self))
        found = [self.scores(queries[i : i + rows]).topk(k, dim=1) for i in range(0, len(queries), rows)]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])

    def scores(self, queries: Encoding) -> Tensor:
        """(Q, M), in the similarity's own blocks."""
        if self.side == "texts":
            return self.similarity(queries, self.entries)
        return self.similarity(self.entries, queries).T


class ShortlistIndex:
    """An index of M encoded sets: finds those with the nearest mean vectors, and scores these exactly.

    shortlist: how many entries are scored per neighbour. make_index: unit vectors (M, D) -> their index.
    """

    def __init__(
        self, entries: Sets, similarity: Similarity, side: str, shortlist: int, make_index: Callable[[Tensor], Index]
    ):
        self.entries, self.similarity, self.side, self.shortlist = entries.detach(), similarity, side, shortlist
        self._means = make_index(_mean_directions(entries))

    def __len__(self) -> int:
        return len(self.entries)

    @torch.no_grad()
    def search(self, queries: Sets, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k), largest first: the k best of each query's shortlist.

        Raises InputError if k exceeds the entries.
        """
        require(0 < k <= len(self), f"k is {k}; expected 1 to {len(self)}, the number of entries in the index")
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


def check_query(queries: Tensor, dimensions: int, k: int, size: int) -> None:
    """Raise InputError unless the queries (Q, D) and k fit an index of `size` vectors with `dimensions` dimensions."""
    matrix("queries", queries, columns=dimensions)
    require(0 < k <= size, f"k is {k}; expected 1 to {size}, the number of vectors in the index")
