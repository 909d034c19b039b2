"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import math
from collections.abc import Sequence
from functools import partial, reduce
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.criteria.base import Columns, Each, ItemBias, Terms, each_of, finite_terms
from vsehub.criteria.kept_shares import KeptShares
from vsehub.neighbors.tiles import ScoreColumns

CACHED = 2**18  # scores worked on at a time
LEAST_MASS = 1e-20  # of an item, below which too many of its shares may have vanished
# Rounds on the large shares save more than they cost from this many scores and rounds on. SAMPLE: the share of the
# items that estimates the queries' scalings.
MANY, LEAST_ROUNDS, SAMPLE = 2**28, 5, 1 / 25
MOST_OFF = 2e-4  # root mean square, in units of similarity, of what they may leave to the last round


class Sinkhorn(ItemBias):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference x items alternately to uniform marginals.

    temperature: τ. rounds: how often rows (reference queries), then columns (items) are normalised. Only the items'
    scaling is kept: the queries' own changes no ranking. Streaming goes over the scores once a round and once before;
    of very many scores on a CPU, twice and over a sample of the items, with rounds on the large shares between
    (`criteria.kept_shares`).
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

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """-log v (M,); of very many items on a CPU by rounds on the large shares, where these are few and enough."""
        sides = [columns] if reference_items is None else [columns, reference_items]
        streams = [side for side in sides if isinstance(side, ScoreColumns) and side.on_cpu]
        many = len(streams) == len(sides) and sum(side.scores for side in streams) >= MANY
        terms = self._by_kept_shares(streams) if many and self.rounds >= LEAST_ROUNDS else None
        return super().fit(columns, reference_items) if terms is None else terms

    def fit_parts(self, each: Each) -> list[Terms]:
        """-log v (m,) of each part; reference items count as items, and have their share."""
        return _biases([scaled for _, scaled in self._rounds(each, self.rounds)])

    def _rounds(self, each: Each, count: int) -> list[Terms]:
        """The results of `_round` for each part in the last round."""
        parts = each(self._first)
        for _ in range(count):
            parts = each(partial(self._round, log_queries=_log_queries(parts)), [scaled for _, *scaled in parts])
        return parts

    def _first(self, columns: Columns) -> Terms:
        """The logarithm of each query's sum (R,) over some items before any scaling."""
        return (reduce(torch.logaddexp, ((self.scale * block).logsumexp(dim=1).cpu().double() for block in columns())),)

    def _round(
        self, columns: Columns, before: Tensor | None = None, *, log_queries: Tensor, kept: KeptShares | None = None
    ) -> Terms:
        """The logarithm of each query's sum (R,) over some items once these are scaled, and that of their M·v (m,).

        before: log M·v of the last round. log_queries: log u (R,), in float64 on the CPU, since some devices have none.
        kept: takes the shares.
        """
        scaled: list[Tensor] = []
        total = torch.full_like(log_queries, -torch.inf)
        first = 0
        for block in columns():
            last = None if before is None else before[first : first + block.shape[1]].to(block.device)
            values, shares = self._normalized(block.T, log_queries, last, kept)
            scaled.append(values)
            total = torch.logaddexp(total, shares.cpu().double().log() - log_queries)
            first += block.shape[1]
            if kept is not None and kept.full:
                break
        return total, torch.cat(scaled)

    def _by_kept_shares(self, sides: Sequence[ScoreColumns]) -> Terms | None:
        """-log v (M,) by rounds on the large shares; None where too many matter, or these leave too much to others."""
        some = each_of([partial(side.blocks, SAMPLE) for side in sides])
        log_queries = _log_queries(self._rounds(some, self.rounds - 1))
        kept = KeptShares(log_queries, sum(side.items for side in sides))
        scaled = [self._round(side, log_queries=log_queries, kept=kept)[1] for side in sides]
        if kept.full:
            return None
        log_queries, moved, expected = kept.rounds(self.rounds - 1)
        moves = moved.float().split([side.items for side in sides])
        last = [
            self._round(side, log_mass + move, log_queries=log_queries)[1]
            for side, log_mass, move in zip(sides, scaled, moves, strict=True)
        ]
        off = torch.cat(last).double() - torch.cat(scaled).double() - expected
        error = self.temperature * float(off.square().mean().sqrt())  # NaN where a query or an item has no large share
        return finite_terms(_biases(last)[0]) if error <= MOST_OFF else None

    def _normalized(
        self, scores: Tensor, queries: Tensor, before: Tensor | None, kept: KeptShares | None
    ) -> tuple[Tensor, Tensor]:
        """log M·v (m,) of items by scores (m, R), and each query's sum (R,) of u·e^{s/τ}·M·v over them.

        queries: log u (R,). before: the items' scaling in the last round, with which all u·e^{s/τ}·v are at most 1 and
        few of them vanish, so that one exponential serves both sums. A few items at a time, which a cache holds.
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
            if kept is not None:
                kept.add(shares, mass, scaled[rows])
            sums += mass.reciprocal() @ shares
        return scaled, sums


def _log_queries(parts: Sequence[Terms]) -> Tensor:
    """log u (R,) of the next round, from the results of `_first` or `_round` for each part of the items."""
    total = reduce(torch.logaddexp, [part[0] for part in parts])
    items = sum(len(scaled) for _, *rest in parts for scaled in rest)
    return math.log(max(1, items)) - math.log(len(total)) - total


def _biases(scaled: Sequence[Tensor]) -> list[Terms]:
    """-log v (m,) of each part of the items, from their log M·v (m,)."""
    items = sum(map(len, scaled))
    return [(math.log(items) - part,) for part in scaled]
