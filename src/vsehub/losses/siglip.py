"""SigLIP, the sigmoid loss of language-image pre-training (Zhai 2023)."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import finite_number, positive
from vsehub.losses.base import checked
from vsehub.types import Loss, NeighborStats


class SigLIP(Loss):
    """-1/N Σ log sigmoid(z (t S + b)) over pairs, z = 1, and negatives, z = -1 (Zhai 2023, algorithm 1).

    scale, bias: t and b, at the start where `learnable`; t is learnt as its logarithm. Other positives of an image are
    left out. Raises InputError for a scale that is not positive.
    """

    def __init__(self, scale: float = 10.0, bias: float = -10.0, learnable: bool = True):
        super().__init__()
        positive("scale", scale)
        finite_number("bias", bias)
        self.log_scale = nn.Parameter(torch.tensor(math.log(scale)), requires_grad=learnable)
        self.bias = nn.Parameter(torch.tensor(float(bias)), requires_grad=learnable)

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss", "scale", "bias"}; `neighbors` is not used."""
        scores = checked(scores, positives)
        scale, bias = self.log_scale.exp().to(scores.dtype), self.bias.to(scores.dtype)
        logits = scale * scores + bias
        negatives = F.logsigmoid(-logits).masked_fill(positives, 0.0).sum()
        loss = -(F.logsigmoid(logits.diagonal()).sum() + negatives) / len(scores)
        return {"loss": loss, "scale": scale.detach(), "bias": bias.detach()}
