"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import fail, positive, whole
from vsehub.criteria.base import Columns, ItemBias, Terms, finite_terms

CACHED = 2**18  # scores worked on at a time
LEAST_MASS = 1e-20  # of an item, below which too many of its shares may have vanished


class Sinkhorn(ItemBias):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference x items alternately to uniform marginals.

    temperature: τ. rounds: how often rows (reference queries), then columns (items) are normalised. Only the items'
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

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """-log v (M,): each pass scales the items it sees and, with them, the next round's queries."""
        queries: Tensor | None = None  # log u (R,), in float64 on the CPU, since some devices have none
        scaled: list[Tensor] = []  # log M·v of each block of items
        for number in range(self.rounds + 1):
            before, scaled = scaled, []
            total: Tensor | None = None  # log of each query's sum over the items
            for place, block in enumerate(columns()):
                part = None
                if queries is None:
                    part = (self.scale * block).logsumexp(dim=1).cpu().double()
                else:
                    own, sums = self._normalized(block.T, queries, before[place] if before else None)
                    scaled.append(own)
                    if number < self.rounds:
                        part = sums.cpu().double().log() - queries
                if part is not None:
                    total = part if total is None else torch.logaddexp(total, part)
            if number == self.rounds:
                break
            if total is None:
                fail("the reference scores have no columns; expected at least one item")
            items = sum(len(part) for part in scaled) or 1
            queries = math.log(items) - math.log(len(total)) - total
        items = sum(len(part) for part in scaled)
        return finite_terms((math.log(items) - torch.cat(scaled),))

    def _normalized(self, scores: Tensor, queries: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
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
            sums += mass.reciprocal() @ shares
        return found, sums
