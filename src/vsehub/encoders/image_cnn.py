"""A small convolutional network from raw pixels, for pictures of about 64 pixels."""

from itertools import pairwise

import torch
from torch import Tensor, nn

from vsehub.checks import require, whole


class ImageCNN(nn.Module):
    """Strided convolutions with batch normalisation, then the last map, pooled to 2 x 2, to the joint space.

    image_shape: (3, height, width) of one image, from the data; uint8 pixels or floats in [0, 1]. dim: D of the joint
    space. width: channels after the first of the stages, doubled at each. Raises InputError for other shapes.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 1024, width: int = 32, stages: int = 4):
        super().__init__()
        for name, value in (("dim", dim), ("width", width), ("stages", stages)):
            whole(name, value)
        require(
            len(image_shape) == 3 and image_shape[0] == 3 and min(image_shape[1:]) >= 2 ** (stages + 1),
            f"image_cnn with {stages} stages takes pictures (3, height, width) of at least {2 ** (stages + 1)} pixels "
            f"a side, but the data's images have shape {tuple(image_shape)}; choose another image encoder",
        )
        channels = [3] + [width * 2**stage for stage in range(stages)]
        blocks = [
            nn.Sequential(
                nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()
            )
            for before, after in pairwise(channels)
        ]
        self.features = nn.Sequential(*blocks, nn.AdaptiveAvgPool2d(2), nn.Flatten())
        self.features.to(memory_format=torch.channels_last)  # a third faster on a CPU
        self.linear = nn.Linear(channels[-1] * 4, dim)
        nn.init.xavier_uniform_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, height, width) -> (N, D)."""
        weight = self.linear.weight
        pixels = images.to(weight.dtype, memory_format=torch.channels_last)
        if images.dtype == torch.uint8:
            pixels = pixels / 255
        return self.linear(self.features(pixels - 0.5))
