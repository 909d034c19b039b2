"""The items that answer each query."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from vsehub.checks import matrix, require


@dataclass(frozen=True)
class Positives:
    """The items that answer each query, as P pairs sorted by query, then by item, each once.

    query, item: (P,) int64. queries, items: how many of each there are. A query may have any number of
    items and an item any number of queries. Metrics omit queries without a positive.
    """

    query: Tensor
    item: Tensor
    queries: int
    items: int

    @classmethod
    def from_mask(cls, mask: Tensor) -> "Positives":
        """From a boolean (Q, M) mask. Raises InputError if it is empty or a query has no positive."""
        require(
            mask.ndim == 2 and mask.dtype == torch.bool,
            f"positives is {mask.dtype} {tuple(mask.shape)}; expected a boolean matrix (queries, items)",
        )
        require(mask.numel() > 0, f"positives has shape {tuple(mask.shape)}; expected at least one query and one item")
        query, item = mask.nonzero(as_tuple=True)
        positives = cls(query, item, *mask.shape)
        positives.require_complete()
        return positives

    @classmethod
    def from_pairs(cls, query: Tensor, item: Tensor, queries: int, items: int, complete: bool = True) -> "Positives":
        """From pairs (P,), (P,) of positions in any order; a pair given twice counts once.

        complete: False allows queries without a positive. Raises InputError if the sides are empty or differ in length,
        if a position is outside of 0 to `queries` - 1 or `items` - 1, or, if complete, for a query without a pair.
        """
        require(
            query.ndim == 1 and query.shape == item.shape and len(query) > 0,
            f"query and item have shapes {tuple(query.shape)} and {tuple(item.shape)}; expected one list of pairs: two "
            "vectors of one length, at least 1",
        )
        query, item = checked_positions("query", query, queries), checked_positions("item", item, items)
        keys = (query * items + item).unique()
        pairs = cls(keys // items, keys % items, queries, items)
        if complete:
            pairs.require_complete()
        return pairs

    @cached_property
    def counts(self) -> Tensor:
        """The number of positives of each query, (Q,): the R of R-Precision."""
        return torch.bincount(self.query, minlength=self.queries)

    def hits(self, positions: Tensor, first: int = 0) -> Tensor:
        """Mask (b, K) of the positives in lists of items, from positions (b, K).

        Row i is the list of query `first` + i. Raises InputError for rows beyond the last query and for positions that
        are not items.
        """
        matrix("positions", positions)
        require(
            first >= 0 and first + len(positions) <= self.queries,
            f"positions has lists of queries {first} to {first + len(positions) - 1}; expected at most {self.queries}",
        )
        positions = checked_positions("positions", positions, self.items)
        query = torch.arange(first, first + len(positions), device=positions.device)
        return self.related(query[:, None], positions)

    def related(self, queries: Tensor, items: Tensor) -> Tensor:
        """Mask of the pairs that belong together, for positions of queries and items of broadcastable shapes."""
        keys = queries * self.items + items
        position = torch.searchsorted(self._keys, keys.contiguous()).clamp(max=len(self._keys) - 1)
        return self._keys[position] == keys

    def to(self, device: torch.device) -> "Positives":
        """The same pairs on a device."""
        return Positives(self.query.to(device), self.item.to(device), self.queries, self.items)

    def of_queries(self, queries: Tensor) -> "Positives":
        """The pairs of some queries (n,), ascending, which are renumbered 0 to n - 1; queries may have no pair."""
        number = torch.full((self.queries,), -1, device=queries.device)
        number[queries] = torch.arange(len(queries), device=queries.device)
        query = number.to(self.query.device)[self.query]
        return Positives(query[query >= 0], self.item[query >= 0], len(queries), self.items)

    @cached_property
    def _keys(self) -> Tensor:
        """One number per pair, in ascending order."""
        keys = self.query * self.items + self.item
        require(
            bool((keys.diff() > 0).all()),
            "positives has pairs that are out of order or given twice; make it by Positives.from_pairs",
        )
        return keys

    def require_complete(self) -> None:
        """Raise InputError unless each query has a positive."""
        without = (self.counts == 0).nonzero().flatten()
        require(
            len(without) == 0,
            f"{len(without)} of {self.queries} queries have no positive item (first: query {without[:1].tolist()}); "
            "expected at least one for every query",
        )


def checked_positions(name: str, positions: Tensor, count: int) -> Tensor:
    """Positions as int64. Raises InputError if they are not whole numbers from 0 to `count` - 1."""
    require(
        not positions.dtype.is_floating_point and positions.dtype not in (torch.bool, torch.complex64),
        f"{name} is {positions.dtype}; expected whole numbers, positions from 0",
    )
    positions = positions.long()
    if positions.numel():
        least, most = (bound.item() for bound in positions.aminmax())
        require(least >= 0 and most < count, f"{name} holds positions {least} to {most}; expected 0 to {count - 1}")
    return positions
