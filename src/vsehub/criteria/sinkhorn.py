"""Sinkhorn normalisation of reference queries x items (Sinkhorn and Knopp 1967; as a matcher: Cuturi 2013)."""

import math
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import fail, positive, whole
from vsehub.criteria.base import Columns, ItemBias, Terms, finite_terms


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
        queries: Tensor | None = None  # log u (R, 1)
        scaled: list[Tensor] = []  # log M·v of each block of items
        for _ in range(self.rounds + 1):
            total: Tensor | None = None  # log of each query's sum over the items
            scaled = []
            for block in columns():
                logits = self.scale * block
                if queries is not None:
                    scaled.append(-(logits + queries).logsumexp(dim=0))
                    logits = logits + scaled[-1]
                part = logits.logsumexp(dim=1, keepdim=True)
                total = part if total is None else torch.logaddexp(total, part)
            if total is None:
                fail("the reference scores have no columns; expected at least one item")
            items = sum(len(part) for part in scaled) or 1
            queries = math.log(items) - math.log(len(total)) - total
        return finite_terms((math.log(items) - torch.cat(scaled),))
