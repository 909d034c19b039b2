"""Encoders of images and texts that are feature vectors: a linear map to the joint space."""

import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import require
from vsehub.types import Encoder


class _Features(Encoder):
    def __init__(self, side: str, shape: tuple[int, ...], dim: int, dropout: float):
        super().__init__()
        require(
            len(shape) == 1,
            f"{side}_features takes one feature vector {'an image' if side == 'image' else 'a text'}, but the data's "
            f"{side}s have shape {tuple(shape)}; choose another {side} encoder or other features",
        )
        self.dim = dim
        self.dropout = nn.Dropout(dropout)
        self.linear = nn.Linear(shape[0], dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def encoded(self, features: Tensor) -> Tensor:
        """(N, features) of any float type -> (N, D)."""
        return self.linear(self.dropout(F.normalize(features.to(self.linear.weight.dtype), dim=1)))


class ImageFeatures(_Features):
    """A linear map of l2-normalised feature vectors.

    image_shape: (features,) of one image, from the data. dim: D of the joint space. dropout: the probability with which
    a normalised feature is 0 in a training step. Weights start Xavier-uniform, the bias at 0. Raises InputError for
    features that are not vectors.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024, dropout: float = 0.0):
        super().__init__("image", image_shape, dim, dropout)

    def forward(self, images: Tensor) -> Tensor:
        """(N, features) of any float type -> (N, D)."""
        return self.encoded(images)


class TextFeatures(_Features):
    """A linear map of l2-normalised feature vectors.

    text_shape: (features,) of one text, from the data. Everything else is as in `ImageFeatures`.
    """

    def __init__(self, text_shape: tuple[int, ...], dim: int = 1024, dropout: float = 0.0):
        super().__init__("text", text_shape, dim, dropout)

    def forward(self, texts: Tensor, lengths: Tensor | None = None) -> Tensor:
        """(N, features) of any float type -> (N, D); `lengths` (N,) are those of captions and not used."""
        return self.encoded(texts)
