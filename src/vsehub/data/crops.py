"""Which parts of a picture are taken: its middle, ten crops, or a random one as VSE++ trains with."""

import math

import numpy as np

from vsehub.data.picture_file import Part

_LONGEST = 16  # times the shorter side: what is longer would need any amount of memory when it is resized
_AREA = (0.08, 1.0)  # of the picture, of a random crop
_RATIO = (3 / 4, 4 / 3)  # width to height of a random crop
_TRIES = 10


def resized(width: int, height: int, resize: int) -> Part:
    """The picture with its shorter side resized to `resize`; of one above 16:1, its middle of that shape."""
    across, down = min(width, _LONGEST * height), min(height, _LONGEST * width)
    shorter = min(across, down)
    return Part(
        *_middle(width, height, across, down), across, down, (resize * across // shorter, resize * down // shorter)
    )


def centre(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Left and top of the middle size x size pixels."""
    return [(round((width - size) / 2), round((height - size) / 2))]


def corners_and_centre(width: int, height: int, size: int) -> list[tuple[int, int]]:
    """Left and top of the crops at the upper left, upper right, lower left and lower right, and in the middle."""
    right, bottom = width - size, height - size
    return [(0, 0), (right, 0), (0, bottom), (right, bottom), *centre(width, height, size)]


def random(width: int, height: int, size: int, rng: np.random.Generator) -> Part:
    """A part of 8 to 100 % of the area and of 3:4 to 4:3, resized to size x size (torchvision's RandomResizedCrop).

    VSE++ trains with it. A picture too long for that in ten tries gives its middle, as long as the ratio allows.
    """
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(*np.log(_RATIO)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1))
            return Part(left, top, across, down, (size, size))
    across, down = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    return Part(*_middle(width, height, across, down), across, down, (size, size))


def _middle(width: int, height: int, across: int, down: int) -> tuple[int, int]:
    return (width - across) // 2, (height - down) // 2
