"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import logging
import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import fail, positive, whole
from vsehub.criteria.base import Columns, ItemBias, Terms, finite_terms, joined
from vsehub.criteria.kept_shares import KeptShares
from vsehub.neighbors.tiles import ScoreColumns

log = logging.getLogger(__name__)

CACHED = 2**18  # scores worked on at a time
LEAST_MASS = 1e-20  # of an item, below which too many of its shares may have vanished
# Rounds on the large shares save more than they cost from this many scores and rounds on. SAMPLE: the share of the
# items from which the queries' scalings are told.
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

    tried_by_auto = True
    columnwise = False
    GRID: ClassVar = {"temperature": (0.005, 0.01, 0.02, 0.05, 0.1)}

    def __init__(self, temperature: float = 0.01, rounds: int = 10):
        positive("temperature", temperature)
        whole("rounds", rounds)
        self.temperature, self.rounds = temperature, rounds
        self.passes = rounds + 1
        self.scale = 1.0 / temperature

    def shortened(self, sides: Sequence[Columns]) -> Terms | None:
        """The bias (M,) of very many items by rounds on the large shares; None if these are too many, or not enough."""
        streams = [side for side in sides if isinstance(side, ScoreColumns) and side.on_cpu]
        if len(streams) < len(sides) or self.rounds < LEAST_ROUNDS or sum(one.scores for one in streams) < MANY:
            return None
        return self._by_kept_shares(streams)

    def _by_kept_shares(self, sides: Sequence[ScoreColumns]) -> Terms | None:
        some = [partial(side.blocks, SAMPLE) for side in sides]
        parts: list[Terms] = [() for _ in sides]
        shared: Terms = ()
        for number in range(self.rounds):
            parts = [self.part(side, number, shared, own) for side, own in zip(some, parts, strict=True)]
            shared = self.shared(parts, number)
        kept = KeptShares(shared[0], sum(side.items for side in sides))
        scaled = [self.part(side, 1, shared, (), kept)[0] for side in sides]
        if kept.full:
            log.info("%s: too many shares matter for rounds on these alone; rounds on all scores follow", self)
            return None
        queries, moved, expected = kept.rounds(self.rounds - 1)
        if not (queries.isfinite().all() and moved.isfinite().all()):
            log.info("%s: some queries or items have no large share; rounds on all scores follow", self)
            return None
        moves = moved.float().split([side.items for side in sides])
        own = [(one + move,) for one, move in zip(scaled, moves, strict=True)]
        last = [self.part(side, self.rounds, (queries,), one) for side, one in zip(sides, own, strict=True)]
        off = torch.cat([one[0] for one in last]).double() - torch.cat(scaled).double() - expected
        error = self.temperature * float(off.square().mean().sqrt())
        if not error <= MOST_OFF:
            log.info(
                "%s: what the large shares leave out moves items by %.1e; rounds on all scores follow", self, error
            )
            return None
        return finite_terms(self.merged_terms(last[:1], last[1] if last[1:] else None))

    def bias(self, reference_scores: Tensor) -> Tensor:
        """-log v (M,) from the whole matrix of reference scores (R, M)."""
        return self.fit(lambda: iter((reference_scores,)))[0]

    def part(self, columns: Columns, number: int, shared: Terms, own: Terms, kept: KeptShares | None = None) -> Terms:
        """The logarithm of M·v (m,) of the items in round `number`, and that of each query's sum over them (R,).

        Pass 0 has only the sums, before any scaling, and the last one only the scaling. shared: log u (R,), in float64
        on the CPU, since some devices have none. kept: takes the shares of the round.
        """
        scaled: list[Tensor] = []
        total: Tensor | None = None
        first = 0
        for block in columns():
            if number == 0:
                sums = (self.scale * block).logsumexp(dim=1).cpu().double()
            else:
                before = own[0][first : first + block.shape[1]].to(block.device) if number > 1 else None
                found, shares = self._normalized(block.T, shared[0], before, kept)
                scaled.append(found)
                sums = shares.cpu().double().log() - shared[0]
            total = sums if total is None else torch.logaddexp(total, sums)
            first += block.shape[1]
            if kept is not None and kept.full:
                break
        if total is None:
            fail("the reference scores have no columns; expected at least one item")
        if number == 0:
            return (total,)
        return (torch.cat(scaled), total) if number < self.rounds else (torch.cat(scaled),)

    def shared(self, parts: Iterable[Terms], number: int) -> Terms:
        """log u (R,): each pass scales the items it sees and, with them, the next round's queries."""
        total: Tensor | None = None
        items = 0
        for part in parts:
            total = part[-1] if total is None else torch.logaddexp(total, part[-1])
            items += len(part[0])
        assert total is not None  # there is at least one part
        return ((math.log(items) if number else 0.0) - math.log(len(total)) - total,)

    def merged_terms(self, parts: Iterable[Terms], bank: Terms | None = None) -> Terms:
        """-log v (M,); the items of the bank count as items, and have their share."""
        (scaled,) = joined(parts)
        return (math.log(len(scaled) + (0 if bank is None else len(bank[0]))) - scaled,)

    def _normalized(
        self, scores: Tensor, queries: Tensor, before: Tensor | None, kept: KeptShares | None
    ) -> tuple[Tensor, Tensor]:
        """log M·v (m,) of items by scores (m, R), and each query's sum (R,) of u·e^{s/τ}·M·v over them.

        queries: log u (R,). before: the items' scaling in the last round, with which all u·e^{s/τ}·v are at most 1 and
        few of them vanish, so that one exponential serves both sums. A few items at a time, which a cache holds.
        """
        queries = queries.to(scores)
        least = math.log(torch.finfo(scores.dtype).tiny) + 12  # processors are slow with numbers that are smaller still
        found, sums = scores.new_empty(len(scores)), torch.zeros_like(queries)
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
            found[rows] = shift - mass.log()
            if kept is not None:
                kept.add(shares, mass, found[rows])
            sums += mass.reciprocal() @ shares
        return found, sums
