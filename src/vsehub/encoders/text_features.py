"""Texts that are vectors already, or another modality in their place, to the joint space."""

import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import require, whole


class TextFeatures(nn.Module):
    """A linear map of l2-normalised feature vectors, as `ImageFeatures` is one.

    text_shape: (features,) of one text, from the data. dim: D of the joint space. Weights start Xavier-uniform, the
    bias at 0. Raises InputError for features that are not vectors.
    """

    def __init__(self, text_shape: tuple[int, ...], dim: int = 1024):
        super().__init__()
        whole("dim", dim)
        require(
            len(text_shape) == 1,
            f"text_features takes one feature vector a text, but the data's texts have shape {tuple(text_shape)}; "
            "choose another text encoder or other features",
        )
        self.linear = nn.Linear(text_shape[0], dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """(N, features) of any float type -> (N, D); `lengths` (N,) are those of captions and not used."""
        return self.linear(F.normalize(texts.to(self.linear.weight.dtype), dim=1))
