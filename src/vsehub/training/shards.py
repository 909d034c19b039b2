"""A memory bank that is too large for one process: each holds and searches a share of its entries."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from vsehub.neighbors.exact import Index
from vsehub.training.gather import gathered, gathered_numbers, own_share, shares
from vsehub.training.processes import process, processes


class ProcessShares:
    """The rows of a bank, divided among the processes in order; `own` are this one's. All processes query at a time."""

    def __init__(self, rows: int):
        self.rows, self.own = rows, own_share(rows)

    def index(self, own: Index) -> Index:
        """An index over all rows, made of each process's index over its own."""
        return _ShardedIndex(own, self)

    def means(self, own: Callable[[Any], Tensor]) -> Callable[[Any], Tensor]:
        """A function queries -> mean (Q,) over all rows, from such a function over the rows of this process."""
        share = (self.own.stop - self.own.start) / self.rows

        def mean(queries: Any) -> Tensor:
            everybodys, mine = _of_all(queries)
            return gathered_numbers(own(everybodys) * share).view(processes(), -1)[:, mine].sum(dim=0)

        return mean


class _ShardedIndex:
    def __init__(self, own: Index, parts: ProcessShares):
        self._own, self._parts = own, parts

    def __len__(self) -> int:
        return self._parts.rows

    def search(self, queries: Any, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest among all rows, largest similarity first."""
        everybodys, mine = _of_all(queries)
        found = self._own.search(everybodys, min(k, len(self._own)))
        most = min(k, max(shares(len(self), processes())))
        similarities, positions = (
            torch.cat([part, part.new_full((len(part), most - part.shape[1]), least)], dim=1)
            for part, least in ((found[0], -torch.inf), (found[1] + self._parts.own.start, -1))
        )
        values, places = (
            gathered_numbers(part).unflatten(0, (processes(), -1))[:, mine].transpose(0, 1).flatten(1)
            for part in (similarities, positions)
        )
        values, order = values.sort(dim=1, descending=True, stable=True)
        return values[:, :k], places.gather(1, order[:, :k])


def _of_all(queries: Any) -> tuple[Any, slice]:
    """The queries of all processes, and which of them are this one's."""
    counts = gathered_numbers(torch.tensor([len(queries)], device=queries.device)).tolist()
    before = sum(counts[: process()])
    return gathered(queries, counts), slice(before, before + len(queries))
