"""NCA (Goldberger 2005) over a batch of pairs, the loss that HAL grew from."""

from torch import Tensor

from vsehub.checks import positive
from vsehub.losses.base import checked, cross_entropies
from vsehub.types import Loss, NeighborStats


class NCA(Loss):
    """Mean over the pairs of -1/γ log e^{γ S_ii} / Σ e^{γ S}, rows and columns added (Goldberger 2005, log form).

    The sums run over the pair and its negatives, so that a direction is 1/γ log(1 + Σ e^{γ(S_neg - S_ii)}): HAL's term
    with the pair's own score for ε. It is 2/γ times `NTXent` at temperature 1/γ and margin 0; the factor 1/γ gives it
    gradients of HAL's size for any γ. gamma: γ, fixed. Other positives of an image are left out. Raises InputError for
    a gamma that is not positive.
    """

    def __init__(self, gamma: float = 30.0):
        super().__init__()
        positive("gamma", gamma)
        self.gamma = gamma

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        logits = self.gamma * checked(scores, positives)
        rows, columns = cross_entropies(logits, logits.diagonal(), positives)
        return {"loss": (rows + columns).mean() / self.gamma}
