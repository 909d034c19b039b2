"""Hinge losses over the negatives of a batch: all of them, the hardest, the k hardest."""

import torch
from torch import Tensor

from vsehub.checks import positive, whole
from vsehub.losses.base import checked, fill_excluded
from vsehub.types import Loss, NeighborStats


class KNNMargin(Loss):
    """Sum over rows and columns of the k largest [margin - S_pos + S_neg]+ (ACL eq. 4).

    k = 1 is `MaxMargin`, k = None, all negatives, `SumMargin`. The terms are summed over the batch, not averaged.
    Raises InputError for a margin or k that is not positive.
    """

    def __init__(self, margin: float = 0.2, k: int | None = 3):
        super().__init__()
        positive("margin", margin)
        if k is not None:
            whole("k", k)
        self.margin, self.k = margin, k

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        scores = checked(scores, positives)
        paired = scores.diagonal()
        negatives = fill_excluded(scores, positives) + self.margin
        image_to_text = torch.relu(negatives - paired[:, None])
        text_to_image = torch.relu(negatives - paired[None, :])
        if self.k is not None:
            k = min(self.k, len(scores))
            image_to_text = image_to_text.topk(k, dim=1).values
            text_to_image = text_to_image.topk(k, dim=0).values
        return {"loss": image_to_text.sum() + text_to_image.sum()}


class MaxMargin(KNNMargin):
    """Sum over rows and columns of the largest [margin - S_pos + S_neg]+ (AAAI eq. 3, the MAX loss of VSE++)."""

    def __init__(self, margin: float = 0.2):
        super().__init__(margin, k=1)


class SumMargin(KNNMargin):
    """Sum over all negatives of [margin - S_pos + S_neg]+ (AAAI eq. 2, the SUM loss)."""

    def __init__(self, margin: float = 0.2):
        super().__init__(margin, k=None)
