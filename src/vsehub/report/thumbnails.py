"""Small pictures that a page carries within itself."""

import io
import struct
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps

from vsehub.checks import fail, require
from vsehub.report.templates import data_url

SIDE = 128
# What Pillow's readers raise on files that are no pictures, or were cut short or altered.
_BROKEN = (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, Image.DecompressionBombError)


class Thumbnails:
    """Makes JPEG data URLs of at most `side` x `side` pixels. missing: the names of those that could not be made."""

    def __init__(self, side: int = SIDE):
        self.side = side
        self.missing: list[str] = []

    def __call__(self, picture: str | Path | np.ndarray, name: str) -> str | None:
        """The thumbnail of an image file or of pixels (3, H, W), uint8 or floats in 0..1; enlarged never.

        None, and `name` among `missing`, where the file is absent or broken. Raises InputError for other arrays.
        """
        small = _of_pixels(picture) if isinstance(picture, np.ndarray) else _of_file(Path(picture), self.side)
        if small is None:
            self.missing.append(name)
            return None
        small.thumbnail((self.side, self.side), Image.Resampling.LANCZOS)
        content = io.BytesIO()
        small.save(content, "JPEG", quality=82)
        return data_url("image/jpeg", content.getvalue())


def _of_file(path: Path, side: int) -> Image.Image | None:
    """The picture, upright and on white where it is transparent; None where it cannot be read."""
    try:
        with Image.open(path) as picture:
            picture.draft("RGB", (2 * side, 2 * side))  # a JPEG is read at a fraction of its size
            upright = ImageOps.exif_transpose(picture)
            if upright.has_transparency_data:
                clear = upright.convert("RGBA")
                upright = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
            return upright.convert("RGB")
    except _BROKEN:
        return None


def _of_pixels(pixels: np.ndarray) -> Image.Image:
    require(
        pixels.ndim == 3 and pixels.shape[0] == 3 and pixels.size > 0,
        f"pixels have shape {pixels.shape}; expected (3, height, width)",
    )
    if pixels.dtype.kind == "f":
        pixels = (np.nan_to_num(pixels.astype(np.float32)).clip(0, 1) * 255).round().astype(np.uint8)
    elif pixels.dtype != np.uint8:
        fail(f"pixels are {pixels.dtype}; expected uint8, or floats between 0 and 1")
    return Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
