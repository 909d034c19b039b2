"""Nearest Neighbor Normalization (Chowdhury 2024, eq. 1)."""

from typing import ClassVar

from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.criteria.base import ItemBias
from vsehub.criteria.csls import mean_of_nearest


class NNN(ItemBias):
    """s - weight · mean of the item's k nearest reference queries.

    k: number of reference queries, at most all. Raises InputError for a k or a weight that is not positive.
    """

    terms_from_k_nearest = True
    GRID: ClassVar = {"k": (1, 8, 32, 128, 512), "weight": (0.25, 0.5, 0.75, 1.0)}

    def __init__(self, k: int = 128, weight: float = 0.75):
        whole("k", k)
        positive("weight", weight)
        self.k, self.weight = k, weight

    def bias(self, reference_scores: Tensor) -> Tensor:
        """The weighted mean similarity of each item to its k nearest reference queries: (R, m) -> (m,)."""
        return self.weight * mean_of_nearest(reference_scores, self.k)
