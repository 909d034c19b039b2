"""The rescaled losses (EMNLP eq. 4): SUM or MAX on scores that grow with the density around both sides."""

from torch import Tensor

from vsehub.checks import one_of, whole
from vsehub.losses.base import checked, mean_of_the_other_largest, without_other_positives
from vsehub.losses.hinge import MaxMargin, SumMargin
from vsehub.types import Loss, NeighborStats

HINGES = {"sum": SumMargin, "max": MaxMargin}


class Rescaled(Loss):
    """SUM or MAX on s'(i, t) = S_it · exp(mean of row i's k largest + mean of column t's k largest) (EMNLP eq. 4).

    Every entry is scaled, the pairs' too. Entry (i, t) itself is left out of both means; the pairs (i, i) and (t, t)
    count for other entries of their row and column. Other positives of an image are not negatives and do not count in
    the means; where fewer than k entries are left, the mean is over those, without any it is 0. aggregate: "sum" or
    "max". detach: no gradient through the factor. Meant for scores about [-1, 1], since the factor is exponential.
    Raises InputError for another aggregate, and for a k or a margin that is not positive.
    """

    def __init__(self, aggregate: str = "sum", k: int = 3, margin: float = 0.2, detach: bool = True):
        super().__init__()
        one_of("aggregate", aggregate, tuple(HINGES))
        whole("k", k)
        self.hinge = HINGES[aggregate](margin)
        self.margin, self.k, self.detach = margin, k, detach

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        return self.hinge(self.rescaled(scores, positives), positives)

    def rescaled(self, scores: Tensor, positives: Tensor) -> Tensor:
        """The scores s' (N, N) of eq. 4."""
        scores = checked(scores, positives)
        source = scores.detach() if self.detach else scores
        counted = without_other_positives(positives)
        rows = mean_of_the_other_largest(source, counted, self.k)
        columns = mean_of_the_other_largest(source.T, counted.T, self.k).T
        return scores * (rows + columns).exp()
