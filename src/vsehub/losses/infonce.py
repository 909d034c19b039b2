"""InfoNCE, the symmetric contrastive loss of CLIP (Radford 2021)."""

import math

import torch
from torch import Tensor, nn

from vsehub.checks import positive
from vsehub.losses.base import checked, cross_entropies
from vsehub.types import Loss, NeighborStats


class InfoNCE(Loss):
    """Mean cross-entropy of each pair among its row's and its column's negatives, at a temperature.

    temperature: temperature of the softmax; the initial value if `learnable`. max_scale: the largest 1/temperature
    (CLIP: 100). What is learnt is log(1/temperature), clamped to the bound before each use (in CLIP after each step).
    Other positives of a row or column are left out of its softmax. Raises InputError for a temperature that is not
    positive.
    """

    def __init__(self, temperature: float = 0.07, learnable: bool = True, max_scale: float = 100.0):
        super().__init__()
        positive("temperature", temperature)
        positive("max_scale", max_scale)
        self.max_scale = max_scale
        self.log_scale = nn.Parameter(torch.tensor(-math.log(temperature)), requires_grad=learnable)

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss", "temperature"}; `neighbors` is not used."""
        scores = checked(scores, positives)
        with torch.no_grad():  # with a gradient, clamping gives a scale beyond the bound gradient 0: it stays there
            self.log_scale.clamp_(max=math.log(self.max_scale))
        scale = self.log_scale.exp().to(scores.dtype)
        logits = scale * scores
        rows, columns = cross_entropies(logits, logits.diagonal(), positives)
        return {"loss": (rows + columns).mean() / 2, "temperature": 1 / scale.detach()}
