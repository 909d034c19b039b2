"""The multi-similarity loss (Wang 2019) between images and texts."""

import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import finite_number, positive
from vsehub.losses.base import checked, fill_excluded
from vsehub.types import Loss, NeighborStats


class MultiSimilarity(Loss):
    """Mean of 1/α log(1 + e^{-α(S_ii - λ)}) + 1/β log(1 + Σ e^{β(S_neg - λ)}), rows and columns added (Wang 2019).

    The pair is an anchor's one positive; other positives of its image are left out. alpha, beta, base: α, β, λ.
    epsilon: ε of the paper's mining: only negatives with S_neg > S_ii - ε count, and an anchor without any contributes
    0; None takes all negatives and all anchors. Raises InputError for constants out of range.
    """

    def __init__(self, alpha: float = 2.0, beta: float = 50.0, base: float = 0.5, epsilon: float | None = 0.1):
        super().__init__()
        positive("alpha", alpha)
        positive("beta", beta)
        finite_number("base", base)
        if epsilon is not None:
            finite_number("epsilon", epsilon, 0)
        self.alpha, self.beta, self.base, self.epsilon = alpha, beta, base, epsilon

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        scores = checked(scores, positives)
        return {"loss": (self._rows(scores, positives) + self._rows(scores.T, positives.T)).mean()}

    def _rows(self, scores: Tensor, positives: Tensor) -> Tensor:
        """The loss of each row as an anchor: (N, N) -> (N,)."""
        paired = scores.diagonal()
        left_out = positives
        if self.epsilon is not None:
            left_out = positives | (scores <= paired[:, None] - self.epsilon)
        exponents = fill_excluded(self.beta * (scores - self.base), left_out)
        # torch's own threshold of 20 leaves an error of e^-20, above float64's.
        negative = F.softplus(exponents.logsumexp(dim=1), threshold=40) / self.beta
        attraction = F.softplus(-self.alpha * (paired - self.base), threshold=40) / self.alpha
        if self.epsilon is not None:
            attraction = attraction.masked_fill(left_out.all(dim=1), 0.0)
        return attraction + negative
