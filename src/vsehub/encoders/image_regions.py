"""Features of several regions of each image to the joint space (SCAN; VSE∞)."""

import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import require, whole
from vsehub.encoders.pooling import pooling_of
from vsehub.sets import Encoding, Sets


class ImageRegions(nn.Module):
    """A linear map of each region's l2-normalised feature vector, and the regions pooled.

    image_shape: (R, features) of one image, from the data. Regions of zeros alone are padding and left out, so that
    images may have differently many. dim: D of the joint space. pooling: "none", the regions as `Sets`, "mean", "max"
    or "gpo". Weights start Xavier-uniform, the bias at 0. Raises InputError for features of other shapes and, when it
    runs, for an image without a region.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024, pooling: str = "none"):
        super().__init__()
        whole("dim", dim)
        require(
            len(image_shape) == 2,
            "image_regions takes regions times features an image, but the data's images have shape "
            f"{tuple(image_shape)}; choose another image encoder or other features",
        )
        self.linear = nn.Linear(image_shape[1], dim)
        self.pool = pooling_of(pooling, ("none", "mean", "max", "gpo"))
        self.gives = self.pool.gives
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Encoding:
        """(N, R, features) of any float type -> N `Sets` of regions, or (N, D)."""
        found = images.any(dim=2)
        lengths = found.sum(dim=1)
        require(
            bool((lengths > 0).all()),
            f"{int((lengths == 0).sum())} of {len(images)} images have no region: all their features are 0; take them "
            "out of the data, or extract their features again",
        )
        features = images[found].to(self.linear.weight.dtype)
        regions = Sets(self.linear(F.normalize(features, dim=1)), lengths)
        return regions if self.gives == "sets" else self.pool(regions.padded()[0], lengths)
