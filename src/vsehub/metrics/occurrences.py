"""k-occurrences of the items, counted from lists of nearest items that come block by block."""

import torch
from torch import Tensor

from vsehub.checks import matrix, require, whole
from vsehub.metrics.positives import Positives, checked_positions

KS = (1, 5, 10)


class Occurrences:
    """N_k of M items for several k, and how many of them are wrong (Radovanović 2010: N_k = GN_k + BN_k).

    items: M. ks: neighbourhood sizes. counts: for each k the (M,) N_k of the queries added so far. bad: for each k the
    (M,) BN_k, how many of the judged queries have the item among their k nearest without its being a positive of
    theirs. judged: how many queries were judged. Raises InputError where items or a k is not positive.
    """

    def __init__(self, items: int, ks: tuple[int, ...] = KS, device: torch.device | str = "cpu"):
        whole("items", items)
        for k in ks:
            whole("k", k)
        self.items = items
        self.counts, self.bad = (
            {k: torch.zeros(items, dtype=torch.int64, device=device) for k in ks} for _ in range(2)
        )
        self.judged = 0
        self._depth = min(max(ks, default=0), items)
        self._device = device

    def add(self, nearest: Tensor, wrong: Tensor | None = None) -> None:
        """Count the lists of some queries.

        nearest: (b, K) positions of each query's nearest items, nearest first. wrong: (b, K) boolean, True where the
        item is no positive of the query; None where that is not known. Raises InputError where the lists are shorter
        than the largest k (and than the items), hold a position outside of 0 to M - 1, or wrong is of another shape.
        """
        matrix("nearest", nearest)
        require(
            nearest.shape[1] >= self._depth,
            f"nearest lists {nearest.shape[1]} items a query; expected at least {self._depth}, the largest k",
        )
        if wrong is not None:
            require(
                wrong.dtype == torch.bool and wrong.shape == nearest.shape,
                f"wrong is {wrong.dtype} {tuple(wrong.shape)}; expected a boolean matrix {tuple(nearest.shape)}",
            )
        nearest = checked_positions("nearest", nearest[:, : self._depth], self.items).to(self._device)
        _add(self.counts, nearest, torch.ones_like(nearest))
        if wrong is not None:
            self.judged += len(nearest)
            _add(self.bad, nearest, wrong[:, : self._depth].to(self._device, torch.int64))

    def add_judged(self, nearest: Tensor, positives: Positives, first: int = 0) -> None:
        """Count the lists (b, K) of queries `first`, `first` + 1, ..., judged by their positives.

        Queries without a positive are counted, but not judged. Raises what `add` and `Positives.hits` raise.
        """
        nearest = nearest.to(positives.query.device)
        wrong = ~positives.hits(nearest, first)
        known = positives.counts[first : first + len(nearest)] > 0
        if known.all():
            self.add(nearest, wrong)
        else:
            self.add(nearest[known], wrong[known])
            self.add(nearest[~known])


def _add(counts: dict[int, Tensor], nearest: Tensor, amounts: Tensor) -> None:
    """Add the amounts (b, K) of each list's first k entries to the items' counts; costs the slots, not the items."""
    for k, count in counts.items():
        count.index_add_(0, nearest[:, :k].flatten(), amounts[:, :k].flatten())
