"""Local scaling (Zelnik-Manor and Perona 2004; for hubness: Schnitzer 2012)."""

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.criteria.base import NOT_FINITE, Correction, Terms
from vsehub.neighbors.topk import top_k_of_blocks

LEAST_DISTANCE = 1e-6  # k copies of one vector are no nearer than this: a division by their distance stays finite


class LocalScaling(Correction):
    """Logarithm of e^{-d² / (d_k(query) · d_k(item))}; 1 minus that similarity is the paper's distance.

    d² = 2 - 2s, the squared distance of unit vectors; d_k the distance to the k-th nearest on the other side, items for
    a query, reference queries for an item. A score above 1 counts as 1, a distance d_k below 1e-6 as 1e-6. k: number
    of neighbours, at most all. Raises InputError for a k that is not positive.
    """

    terms_from_k_nearest = True
    GRID: ClassVar = {"k": (1, 2, 5, 10, 20)}

    def __init__(self, k: int = 5):
        whole("k", k)
        self.k = k

    def item_terms(self, reference_scores: Tensor) -> Terms:
        """The distance (m,) from each item to its k-th nearest reference query, from scores (R, m)."""
        return (self._distances((reference_scores.T,)).squeeze(1),)

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """The distance (b, 1) from each query to its k-th nearest item, which does not change the query's ranking."""
        return (self._distances(blocks),)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """-d² over the product of the distances that are given."""
        scaled = (2 * scores - 2).clamp(max=0) / item_terms[0]
        return scaled / query_terms[0] if query_terms else scaled

    def _distances(self, blocks: Iterable[Tensor]) -> Tensor:
        largest = top_k_of_blocks(blocks, self.k)[0]
        # NaN and infinity rank first, so that the k-th value alone would not reveal them.
        require(bool((largest[:, 0] < torch.inf).all()), f"scores {NOT_FINITE}")
        return (2 - 2 * largest[:, -1:]).clamp(min=LEAST_DISTANCE**2).sqrt()
