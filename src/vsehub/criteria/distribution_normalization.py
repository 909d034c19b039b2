"""Distribution normalisation (Zhou 2023), its item side: each item's score with the mean query is subtracted."""

from typing import ClassVar

from torch import Tensor

from vsehub.checks import positive
from vsehub.criteria.base import ItemBias


class DistributionNormalization(ItemBias):
    """s - weight · <mean reference query, item>.

    The mean query's product with an item is the mean of the reference queries' products with it. With a weight of 1 the
    ranking is that of mean-centred vectors, <q - mean query, m - mean item>, not divided by their norms. Raises
    InputError for a weight that is not positive.
    """

    GRID: ClassVar = {"weight": (0.1, 0.25, 0.5, 0.75, 1.0)}

    def __init__(self, weight: float = 0.5):
        positive("weight", weight)
        self.weight = weight

    def bias(self, reference_scores: Tensor) -> Tensor:
        """The weighted mean score of each item over the reference queries: (R, m) -> (m,)."""
        return self.weight * reference_scores.mean(dim=0)
