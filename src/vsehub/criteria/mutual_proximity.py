"""Mutual proximity with normal fits (Schnitzer 2012, gaussian, independent)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vsehub.criteria.base import Correction, Terms
from vsehub.criteria.sinkhorn import moments


class MutualProximity(Correction):
    """Logarithm of P(Q' < s) · P(M' < s): the pair is closer than its query's and item's usual pairs.

    Q' is normal with mean and deviation of the query's scores over the items, M' with those of the item's scores over
    the reference queries; a deviation below 1e-6 counts as 1e-6, which is meant for scores about as large as cosines.
    The logarithm keeps far pairs, whose product is 0 in floating point, in their order.
    """

    query_terms_affect_order = True

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """Mean and deviation (m,) of each item's scores over the reference queries (R, m)."""
        mean, deviation = _normal(moments((reference_scores.T,)))
        return mean.squeeze(1).to(reference_scores), deviation.squeeze(1).to(reference_scores)

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """The moments of each query's scores over the items, in float64; see `moments`."""
        return moments(blocks)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """log Φ((s - μ_q)/σ_q) + log Φ((s - μ_m)/σ_m)."""
        mean, deviation = (term.to(scores) for term in _normal(query_terms))
        of_query, of_item = (scores - mean) / deviation, (scores - item_terms[0]) / item_terms[1]
        return torch.special.log_ndtr(of_query) + torch.special.log_ndtr(of_item)


def _normal(row_moments: Terms) -> Terms:
    """Mean and population deviation (b, 1), from `moments`."""
    count, mean, squares = row_moments
    # Equal scores, or a single score, have deviation 0; the floor is the smallest that still ranks scores near them.
    return mean, (squares / count).sqrt().clamp(min=1e-6)
