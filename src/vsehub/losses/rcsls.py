"""RCSLS (Joulin 2018): the CSLS criterion itself as the training loss."""

from torch import Tensor

from vsehub.checks import whole
from vsehub.losses.base import checked, mean_of_largest, without_other_positives
from vsehub.types import Loss, NeighborStats


class RCSLS(Loss):
    """Mean over the pairs of -2 S_ii + mean of row i's k largest + mean of column i's k largest (Joulin 2018).

    The neighbours are those of the batch, including the pair itself, as in the paper, and excluding other positives of
    the image; a batch with fewer than k counts all. It has no margin, so it needs bounded scores such as cosines.
    Raises InputError for a k that is not a whole number above 0.
    """

    def __init__(self, k: int = 10):
        super().__init__()
        whole("k", k)
        self.k = k

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        scores = checked(scores, positives)
        counted = without_other_positives(positives)
        rows = mean_of_largest(scores, counted, self.k)
        columns = mean_of_largest(scores.T, counted.T, self.k)
        return {"loss": (rows + columns - 2 * scores.diagonal()).mean()}
