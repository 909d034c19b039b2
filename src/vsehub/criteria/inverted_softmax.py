"""Inverted softmax (Smith 2017; ACL eq. 5): an item's score is divided among the queries that are near it."""

from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import positive
from vsehub.criteria.base import ItemBias, checked, finite


class InvertedSoftmax(ItemBias):
    """Logarithm of e^{βs(q,m)} / (Σ_q' e^{βs(q',m)})^w.

    beta: the inverse temperature. weight: w, 1 in ACL. With the queries as their own reference the sum leaves the query
    itself out, as ACL eq. 5 prints it, if w is 1; with reference queries the sum runs over those. With a single query
    as its own reference, the sum includes the query itself. Raises InputError for a beta or a weight that is not
    positive and finite.
    """

    GRID: ClassVar = {"beta": (5.0, 10.0, 20.0, 30.0, 50.0, 100.0)}

    def __init__(self, beta: float = 30.0, weight: float = 1.0):
        positive("beta", beta)
        positive("weight", weight)
        self.scale = self.beta = beta
        self.weight = weight

    def bias(self, reference_scores: Tensor) -> Tensor:
        """w log Σ_r e^{βs(r,m)} of scores (R, m): (m,)."""
        return self.weight * (self.scale * reference_scores).logsumexp(dim=0)

    def rescore(
        self,
        scores: Tensor,
        reference_scores: Tensor | None = None,
        *,
        reference_item_scores: Tensor | None = None,
    ) -> Tensor:
        """The logarithm of the inverted softmax, (Q, M); see `Correction.rescore`.

        Whether or not the sums include the query itself, the ranking is the same: that of the bias alone.
        """
        has_reference = reference_scores is not None or reference_item_scores is not None
        if has_reference or self.weight != 1 or len(scores) < 2:
            return super().rescore(scores, reference_scores, reference_item_scores=reference_item_scores)
        logits = self.scale * checked("scores", scores)
        return finite("corrected scores", logits - _log_sum_of_others(logits))


def _log_sum_of_others(logits: Tensor) -> Tensor:
    """log Σ_{q'≠q} e^{logits(q',m)} for each entry (Q, M) of at least two queries.

    Subtracting an entry from the whole sum loses all digits where one query dominates the column, so the sum for the
    largest entry of a column is taken over the others directly. All other sums contain the largest entry and lose
    little.
    """
    top, at = logits.max(dim=0, keepdim=True)
    parts = (logits - top).exp()
    without = top + (parts.sum(dim=0) - parts).log()
    rest = logits.scatter(0, at, -torch.inf).logsumexp(dim=0, keepdim=True)
    return without.scatter(0, at, rest)
