"""Image encoders trained from the start: regions or raw pixels to the joint space."""

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import one_of, require, whole
from vsehub.encoders.features import linear_map
from vsehub.encoders.pooling import gives, pooling_of
from vsehub.sets import Encoding, Sets
from vsehub.types import Encoder


class ImageRegions(Encoder):
    """A linear map of each region's l2-normalised feature vector, and the regions pooled.

    image_shape: (R, features) of one image, from the data. Regions that are all zeros are padding and left out, so that
    the number of regions may differ between images. dim: D of the joint space. pooling: "none", the regions as `Sets`,
    "mean", "max" or "gpo". dropout: probability of dropping a normalised feature in a training step. Weights
    start Xavier-uniform, the bias at 0. Raises InputError for features of other shapes and, when it runs, for an image
    without a region.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024, pooling: str = "none", dropout: float = 0.0):
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        require(
            len(image_shape) == 2,
            "image_regions takes regions times features an image, but the data's images have shape "
            f"{tuple(image_shape)}; choose another image encoder or other features",
        )
        self.linear = linear_map(image_shape[1], dim)
        self.pool = pooling_of(pooling, ("none", "mean", "max", "gpo"))
        self.gives = gives(pooling)

    def forward(self, images: Tensor) -> Encoding:
        """(N, R, features) of any float type -> N `Sets` of regions, or (N, D)."""
        is_region = images.ne(0).any(dim=2)
        lengths = is_region.sum(dim=1)
        require(
            bool((lengths > 0).all()),
            f"{int((lengths == 0).sum())} of {len(images)} images have no region: all their features are 0; take them "
            "out of the data, or extract their features again",
        )
        features = images[is_region].to(self.linear.weight.dtype)
        regions = Sets(self.linear(self.dropout(F.normalize(features, dim=1))), lengths)
        return regions if self.gives == "sets" else self.pool(regions.padded()[0], lengths)


class ImageCNN(Encoder):
    """Strided convolutions with normalisation, then a linear map to the joint space.

    image_shape: (3, height, width) of one image, from the data; uint8 pixels or floats in [0, 1]. dim: D of the joint
    space. width: channels of the first convolution, doubled at each further one. stages: number of convolutions.
    pooling: "flat" averages the last feature map to 2 x 2 and maps it as one vector; "none" maps each of its positions,
    which are the regions as `Sets`; "mean", "max" and "gpo" pool these. norm: "batch" normalises each channel over the
    batch (Ioffe and Szegedy 2015); "group" normalises groups of 8 channels of each picture alone (Wu and He 2018),
    which does not depend on how a batch is divided. Raises InputError for other shapes.
    """

    def __init__(
        self,
        image_shape: tuple[int, ...],
        dim: int = 1024,
        width: int = 32,
        stages: int = 4,
        pooling: str = "flat",
        norm: str = "batch",
    ):
        super().__init__()
        one_of("norm", norm, ("batch", "group"))
        whole("width", width)
        require(
            len(image_shape) == 3 and image_shape[0] == 3 and min(image_shape[1:]) >= 2 ** (stages + 1),
            f"image_cnn with {stages} stages takes pictures (3, height, width) of at least {2 ** (stages + 1)} pixels "
            f"a side, but the data's images have shape {tuple(image_shape)}; choose another image encoder",
        )
        require(
            norm == "batch" or width % math.ceil(width / 8) == 0,
            f"width is {width}, which norm=group cannot divide into groups of up to 8 channels; give a multiple of 8",
        )
        channels = [3] + [width * 2**stage for stage in range(stages)]
        blocks = [
            nn.Sequential(
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False),
                nn.BatchNorm2d(after) if norm == "batch" else nn.GroupNorm(math.ceil(after / 8), after),
                nn.ReLU(inplace=True),
            )
            for before, after in pairwise(channels)
        ]
        one_of("pooling", pooling, ("flat", "none", "mean", "max", "gpo"))
        self.pool = None if pooling == "flat" else pooling_of(pooling)
        self.gives = gives(pooling)
        height, width = (math.ceil(side / 2**stages) for side in image_shape[1:])
        even = height % 2 == width % 2 == 0
        quarters = nn.AvgPool2d((height // 2, width // 2)) if even else nn.AdaptiveAvgPool2d(2)  # the same, but faster
        ends = [quarters, nn.Flatten()] if self.pool is None else [nn.Flatten(2)]
        self.features = nn.Sequential(*blocks, *ends)
        self.features.to(memory_format=torch.channels_last)  # a third faster on a CPU
        self.linear = linear_map(channels[-1] * (4 if self.pool is None else 1), dim)

    def forward(self, images: Tensor) -> Encoding:
        """(N, 3, height, width) -> (N, D), or N `Sets` of regions."""
        weight = self.linear.weight
        pixels = images.to(weight.dtype)
        if images.dtype == torch.uint8:
            pixels.div_(255)  # a copy by now
        features = self.features((pixels - 0.5).to(memory_format=torch.channels_last))
        if self.pool is None:
            return self.linear(features)
        regions = self.linear(features.transpose(1, 2))
        return self.pool(regions, torch.full((regions.shape[0],), regions.shape[1], device=regions.device))
