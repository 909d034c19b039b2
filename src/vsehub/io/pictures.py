"""Opening of picture files, in formats that start no program (as EPS does) and decode within bounds."""

from pathlib import Path
from typing import BinaryIO

from PIL import Image

FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def open_picture(file: Path | BinaryIO) -> Image.Image:
    """The picture of a file, not decoded yet. Raises UnidentifiedImageError for a format outside `FORMATS`."""
    return Image.open(file, formats=FORMATS)
