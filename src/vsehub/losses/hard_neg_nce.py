"""Cross-entropy whose negatives are reweighted by their hardness (Robinson 2021; between modalities Radenovic 2023)."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import finite_number, positive
from vsehub.losses.base import checked, fill_positives
from vsehub.types import Loss, NeighborStats


class HardNegNCE(Loss):
    """Mean over rows and columns of log(1 + Σ_neg w e^{(S_neg - S_ii)/τ}), w = n e^{β S_neg/τ} / Σ_neg e^{β S_neg/τ}.

    n is the number of the anchor's negatives, so that the weights are 1 on average and β = 0 is InfoNCE at a fixed
    temperature. Robinson 2021 with class prior τ⁺ = 0; HN-NCE of Radenovic 2023 (DiHT) with α = 1. The gradient runs
    through the weights, as in both. Other positives of an image are left out. temperature: τ. beta: β. Raises
    InputError for a temperature that is not positive or a beta below 0.
    """

    def __init__(self, temperature: float = 0.07, beta: float = 0.25):
        super().__init__()
        positive("temperature", temperature)
        finite_number("beta", beta, 0)
        self.temperature, self.beta = temperature, beta

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        logits = checked(scores, positives) / self.temperature
        return {"loss": (self._rows(logits, positives) + self._rows(logits.T, positives.T)).mean() / 2}

    def _rows(self, logits: Tensor, positives: Tensor) -> Tensor:
        """The loss of each row as an anchor: (N, N) -> (N,)."""
        hard, norm = (
            fill_positives(factor * logits, positives).logsumexp(dim=1) for factor in (1 + self.beta, self.beta)
        )
        count = (~positives).sum(dim=1)
        weighted = count.clamp(min=1).to(logits.dtype).log() + hard - norm
        excess = (weighted - logits.diagonal()).masked_fill(count == 0, -torch.inf)
        # torch's own threshold of 20 leaves an error of e^-20, above float64's.
        return F.softplus(excess, threshold=40)
