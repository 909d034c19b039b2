"""A memory bank that is divided among processes: each holds and searches its share of the entries."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsehub.neighbors.exact import Index
from vsehub.training.gather import gathered, gathered_numbers, own_share, shares
from vsehub.training.processes import process, processes


class ProcessShares:
    """The rows of a bank, divided among the processes in order; see `BankShares`.

    rows: of the whole bank. own: the rows of this process. Queries are collective: all processes have to make them.
    """

    def __init__(self, rows: int):
        self.rows, self.own = rows, own_share(rows)

    def index(self, own: Index) -> Index:
        """An index over all rows. own: the index over the rows of this process."""
        return _IndexOfShares(own, self)

    def means(self, own: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        """A function queries -> mean similarity (Q,) to all rows. own: the same for the rows of this process."""
        share = (self.own.stop - self.own.start) / self.rows

        def mean(queries: Any) -> Tensor:
            queries_of_all, mine = _of_all(queries)
            return gathered_numbers(own(queries_of_all) * share).view(processes(), -1)[:, mine].sum(dim=0)

        return mean


class _IndexOfShares:
    def __init__(self, own: Index, shares: ProcessShares):
        self._own, self._shares = own, shares

    def __len__(self) -> int:
        return self._shares.rows

    def search(self, queries: Any, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and rows (Q, k) of the k nearest among all rows, largest similarity first."""
        queries_of_all, mine = _of_all(queries)
        similarities, rows = self._own.search(queries_of_all, min(k, len(self._own)))
        depth = min(k, max(shares(len(self), processes())))  # every process gathers lists of the same length
        similarities, rows = (
            torch.cat([lists, lists.new_full((len(lists), depth - lists.shape[1]), filling)], dim=1)
            for lists, filling in ((similarities, -torch.inf), (rows + self._shares.own.start, -1))
        )
        similarities, rows = (
            gathered_numbers(lists).unflatten(0, (processes(), -1))[:, mine].transpose(0, 1).flatten(1)
            for lists in (similarities, rows)
        )
        similarities, order = similarities.sort(dim=1, descending=True, stable=True)
        return similarities[:, :k], rows.gather(1, order[:, :k])


def _of_all(queries: Any) -> tuple[Any, slice]:
    """The queries of all processes, and the slice of them that this process asked."""
    counts = gathered_numbers(torch.tensor([len(queries)], device=queries.device)).tolist()
    before = sum(counts[: process()])
    return gathered(queries, counts), slice(before, before + len(queries))
