"""Dual softmax (Cheng 2021, CAMoE): the score times its share among all queries."""

from typing import ClassVar

from torch import Tensor

from vsehub.checks import positive
from vsehub.criteria.base import Correction, Terms


class DualSoftmax(Correction):
    """s · e^{βs} / Σ_r e^{βs(r, item)}, the sum over the reference queries.

    beta: τ in the paper. In float64: shares of e^-200 still rank the items they belong to. Raises InputError for a beta
    that is not positive.
    """

    GRID: ClassVar = {"beta": (10.0, 20.0, 50.0, 100.0)}

    def __init__(self, beta: float = 100.0):
        positive("beta", beta)
        self.beta = beta

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """log Σ_r e^{βs(r,m)} of scores (R, m): (m,), float64.

        β times the largest is taken in float64 as in `corrected`, so that shares are right at any scale of the scores.
        """
        largest = reference_scores.amax(dim=0)
        shares = (reference_scores - largest).mul_(self.beta).exp_().sum(dim=0)
        return (self.beta * largest.double() + shares.log(),)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """The score times its share, float64."""
        return scores * (self.beta * scores.double() - item_terms[0]).exp()
