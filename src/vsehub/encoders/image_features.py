"""Frozen features to the joint space (AAAI; VSE++)."""

import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import require, whole


class ImageFeatures(nn.Module):
    """A linear map of l2-normalised feature vectors.

    image_shape: (features,) of one image, from the data. dim: D of the joint space. Weights start Xavier-uniform, the
    bias at 0. Raises InputError for features that are not vectors.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024):
        super().__init__()
        whole("dim", dim)
        require(
            len(image_shape) == 1,
            f"image_features takes one feature vector an image, but the data's images have shape {tuple(image_shape)}; "
            "choose another image encoder or other features",
        )
        self.linear = nn.Linear(image_shape[0], dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(N, features) of any float type -> (N, D)."""
        return self.linear(F.normalize(images.to(self.linear.weight.dtype), dim=1))
