"""Which parts of a picture are taken: the centre, ten crops, or a random one as VSE++ trained with."""

import math

import numpy as np

from vsehub.data.picture_file import Box

_AREA = (0.08, 1.0)  # of the picture, of a random crop
_RATIO = (3 / 4, 4 / 3)  # width to height of a random crop
_TRIES = 10


def centre(width: int, height: int, size: int, resize: int) -> list[Box]:
    """The middle size x size pixels of the picture with its shorter side resized to `resize`, in its own pixels."""
    return _in_its_own_pixels([_middle(*_resized(width, height, resize), size)], width, height, size, resize)


def corners_and_centre(width: int, height: int, size: int, resize: int) -> list[Box]:
    """As `centre`, after the corners: upper left, upper right, lower left, lower right."""
    across, down = _resized(width, height, resize)
    right, bottom = across - size, down - size
    starts = [(0, 0), (right, 0), (0, bottom), (right, bottom), _middle(across, down, size)]
    return _in_its_own_pixels(starts, width, height, size, resize)


def random(width: int, height: int, rng: np.random.Generator) -> Box:
    """A part of 8 to 100 % of the area and of 3:4 to 4:3 (torchvision's RandomResizedCrop, which VSE++ trains with).

    A picture too long for that in ten tries gives its middle, as long as the ratio allows.
    """
    for _ in range(_TRIES):
        area = width * height * rng.uniform(*_AREA)
        ratio = math.exp(rng.uniform(*np.log(_RATIO)))
        across, down = round(math.sqrt(area * ratio)), round(math.sqrt(area / ratio))
        if 0 < across <= width and 0 < down <= height:
            left, top = int(rng.integers(width - across + 1)), int(rng.integers(height - down + 1))
            return left, top, left + across, top + down
    across, down = min(width, round(height * _RATIO[1])), min(height, round(width / _RATIO[0]))
    left, top = (width - across) // 2, (height - down) // 2
    return left, top, left + across, top + down


def _resized(width: int, height: int, resize: int) -> tuple[int, int]:
    shorter = min(width, height)
    return resize * width // shorter, resize * height // shorter


def _middle(across: int, down: int, size: int) -> tuple[int, int]:
    return round((across - size) / 2), round((down - size) / 2)


def _in_its_own_pixels(starts: list[tuple[int, int]], width: int, height: int, size: int, resize: int) -> list[Box]:
    across, down = _resized(width, height, resize)
    x, y = width / across, height / down
    return [(left * x, top * y, (left + size) * x, (top + size) * y) for left, top in starts]
