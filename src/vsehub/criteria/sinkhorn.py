"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.criteria.base import Columns, Each, ItemBias, Terms

CACHED = 2**18  # scores worked on at a time
LEAST_MASS = 1e-20  # of an item, below which too many of its shares may have vanished


class Sinkhorn(ItemBias):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference x items alternately to uniform marginals.

    temperature: τ. rounds: number of normalisations of rows (reference queries), then columns (items). Only the items'
    scaling is kept: the queries' own changes no ranking. Streaming goes over the scores once a round and once before.
    Raises InputError for a temperature or a number of rounds that is not positive.
    """

    columnwise = False
    GRID: ClassVar = {"temperature": (0.005, 0.01, 0.02, 0.05, 0.1)}

    def __init__(self, temperature: float = 0.01, rounds: int = 10):
        positive("temperature", temperature)
        whole("rounds", rounds)
        self.temperature, self.rounds = temperature, rounds
        self.scale = 1.0 / temperature

    def bias(self, reference_scores: Tensor) -> Tensor:
        """-log v (M,) from the whole matrix of reference scores (R, M)."""
        return self.fit(lambda: iter((reference_scores,)))[0]

    def fit_parts(self, each: Each) -> list[Terms]:
        """-log v (m,) of each part; reference items count as items, and have their share."""
        parts = each(self._first)
        for _ in range(self.rounds):
            parts = each(partial(self._round, log_queries=_log_queries(parts)), [scaled for _, *scaled in parts])
        items = sum(len(scaled) for _, scaled in parts)
        return [(math.log(items) - scaled,) for _, scaled in parts]

    def _first(self, columns: Columns) -> Terms:
        """The logarithm of each query's sum (R,) over some items before any scaling."""
        return (reduce(torch.logaddexp, ((self.scale * block).logsumexp(dim=1).cpu().double() for block in columns())),)

    def _round(self, columns: Columns, before: Tensor | None = None, *, log_queries: Tensor) -> Terms:
        """The logarithm of each query's sum (R,) over some items once these are scaled, and that of their M·v (m,).

        before: log M·v of the last round. log_queries: log u (R,), in float64 on the CPU, since some devices have none.
        """
        scaled: list[Tensor] = []
        total = torch.full_like(log_queries, -torch.inf)
        first = 0
        for block in columns():
            last = None if before is None else before[first : first + block.shape[1]].to(block.device)
            values, shares = self._normalized(block.T, log_queries, last)
            scaled.append(values)
            total = torch.logaddexp(total, shares.cpu().double().log() - log_queries)
            first += block.shape[1]
        return total, torch.cat(scaled)

    def _normalized(self, scores: Tensor, queries: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """log M·v (m,) of items by scores (m, R), and each query's sum (R,) of u·e^{s/τ}·M·v over them.

        queries: log u (R,). before: the items' scaling in the last round; it keeps all u·e^{s/τ}·v at most 1, few of
        them 0, so that one exponential serves both sums. A few items at a time, which a cache holds.
        """
        queries = queries.to(scores)
        least = math.log(torch.finfo(scores.dtype).tiny) + 12  # processors are slow with numbers that are smaller still
        scaled, sums = scores.new_empty(len(scores)), torch.zeros_like(queries)
        height = len(scores) if scores.is_cuda else max(1, CACHED // len(queries))
        for first in range(0, len(scores), height):
            rows = slice(first, first + height)
            shift = queries.new_zeros(len(scores[rows])) if before is None else before[rows]
            shares = (self.scale * scores[rows]).add_(queries).add_(shift[:, None]).clamp_(min=least).exp_()
            mass = shares.sum(dim=1)
            if mass.min() < LEAST_MASS:
                logits = (self.scale * scores[rows]).add_(queries)
                shift, mass = -logits.logsumexp(dim=1), torch.ones_like(mass)
                shares = logits.add_(shift[:, None]).clamp_(min=least).exp_()
            scaled[rows] = shift - mass.log()
            sums += mass.reciprocal() @ shares
        return scaled, sums


def _log_queries(parts: Sequence[Terms]) -> Tensor:
    """log u (R,) of the next round, from the results of `_first` or `_round` for each part of the items."""
    total = reduce(torch.logaddexp, [part[0] for part in parts])
    items = sum(len(scaled) for _, *rest in parts for scaled in rest)
    return math.log(max(1, items)) - math.log(len(total)) - total
