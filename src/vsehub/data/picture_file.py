"""One picture from its file: decoded, upright, in RGB, and a part of it at the size that is asked for."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from vsehub.checks import InputError

_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ORIENTATION = 0x0112  # the EXIF tag
_LYING = (5, 6, 7, 8)  # orientations that exchange width and height
_SPARE = 2  # a JPEG is decoded at 1/2, 1/4 or 1/8 only where that leaves this many pixels for each that is wanted


class Part(NamedTuple):
    """A part of an upright picture, in its pixels, and the width and height that it is resized to."""

    left: int
    top: int
    width: int
    height: int
    size: tuple[int, int]


def read_part(path: str | Path, choose: Callable[[int, int], Part]) -> np.ndarray:
    """The part that `choose(width, height)` names, resized (bilinear, antialiased): (height, width, 3) uint8.

    Whatever a file holds becomes upright (EXIF) 8-bit RGB: transparency lies on white, 16 bits are scaled to 8, CMYK
    follows its Adobe marker, of several frames the first is taken. Raises InputError where it cannot be decoded.
    """
    try:
        with Image.open(path) as file:
            orientation = _orientation(file)
            width, height = file.size[::-1] if orientation in _LYING else file.size
            part = choose(width, height)
            _decode_smaller(file, min(part.width / part.size[0], part.height / part.size[1]))
            picture = _upright_rgb(file, orientation)
    except Exception as error:
        raise InputError(f"{path} cannot be decoded ({_reason(error)})") from error
    x, y = picture.width / width, picture.height / height  # below 1 where it was decoded smaller
    right, bottom = min((part.left + part.width) * x, picture.width), min((part.top + part.height) * y, picture.height)
    return np.asarray(
        picture.resize(part.size, Image.Resampling.BILINEAR, (part.left * x, part.top * y, right, bottom))
    )


def damage(path: str | Path) -> str | None:
    """Why a picture cannot be decoded, in full and at full size; None where it can."""
    try:
        with Image.open(path) as file:
            _upright_rgb(file, _orientation(file))
    except Exception as error:
        return _reason(error)
    return None


def _reason(error: Exception) -> str:
    # Pillow repeats the path where it recognises no format.
    return "not a picture" if isinstance(error, Image.UnidentifiedImageError) else str(error) or type(error).__name__


def _orientation(file: Image.Image) -> int:
    """The EXIF orientation that is still to be applied, 1 to 8."""
    if file.format != "JPEG":
        file.load()  # a PNG may say it behind the pixels; a TIFF turns itself as it is loaded
    try:
        return file.getexif().get(_ORIENTATION, 1)
    except Exception:  # damaged EXIF raises almost anything, and the pixels may be whole
        return 1


def _decode_smaller(file: Image.Image, shrink: float) -> None:
    """Let a JPEG be decoded at a fraction of its size; shrink: its pixels for one that is wanted."""
    if shrink >= 2 * _SPARE:
        file.draft(None, (int(file.width * _SPARE / shrink), int(file.height * _SPARE / shrink)))


def _upright_rgb(file: Image.Image, orientation: int) -> Image.Image:
    picture = _rgb(file)
    return picture.transpose(_TURNS[orientation]) if orientation in _TURNS else picture


def _rgb(file: Image.Image) -> Image.Image:
    if file.mode == "I" or file.mode.startswith("I;16"):
        return _from_16_bits(np.asarray(file)).convert("RGB")
    if file.mode == "F":
        raise ValueError("its pixels are floating-point numbers of no known range")
    if file.has_transparency_data:
        picture = file.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    file.load()
    return file if file.mode == "RGB" else file.convert("RGB")


def _from_16_bits(values: np.ndarray) -> Image.Image:
    if values.min() < 0 or values.max() > 65535:
        raise ValueError("its pixels are integers of more than 16 bits, of no known range")
    return Image.fromarray(((values.astype(np.uint32) + 128) // 257).astype(np.uint8))
