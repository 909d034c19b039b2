"""Mutual proximity with normal fits (Schnitzer 2012, gaussian, independent)."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vsehub.criteria.base import Correction, Terms


class MutualProximity(Correction):
    """Logarithm of P(Q' < s) · P(M' < s): the pair is closer than its query's and item's usual pairs.

    Q' is normal with mean and deviation of the query's scores over the items, M' with those of the item's scores over
    the reference queries; a deviation below 1e-6 counts as 1e-6, which is meant for scores about as large as cosines.
    The logarithm keeps far pairs, whose product is 0 in floating point, in their order.
    """

    query_terms_rank = True

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """Mean and deviation (m,) of each item's scores over the reference queries (R, m)."""
        mean, deviation = _moments((reference_scores.T,))
        return mean.squeeze(1), deviation.squeeze(1)

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """Mean and deviation (b, 1) of each query's scores over the items."""
        return _moments(blocks)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """log Φ((s - μ_q)/σ_q) + log Φ((s - μ_m)/σ_m)."""
        of_query, of_item = ((scores - mean) / deviation for mean, deviation in (query_terms, item_terms))
        return torch.special.log_ndtr(of_query) + torch.special.log_ndtr(of_item)


def _moments(blocks: Iterable[Tensor]) -> Terms:
    """Mean and population deviation (b, 1) of each row over all blocks, in one pass (Chan 1979)."""
    count, dtype = 0, torch.float64
    mean, squares = torch.zeros((), dtype=dtype), torch.zeros((), dtype=dtype)
    for block in blocks:
        width = block.shape[1]
        own = block.double().mean(dim=1, keepdim=True)
        shift = own - mean
        squares = (
            squares + (block - own).square().sum(dim=1, keepdim=True) + shift**2 * (count * width / (count + width))
        )
        mean = mean + shift * (width / (count + width))
        count, dtype = count + width, block.dtype
    # A single score, or equal ones, have no spread; the floor is the smallest that still ranks scores next to them.
    deviation = (squares / count).sqrt().clamp(min=1e-6)
    return mean.to(dtype), deviation.to(dtype)
