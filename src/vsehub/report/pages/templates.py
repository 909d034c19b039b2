"""Rendering of page templates, with plots and thumbnails that are embedded in the page."""

import base64
import io
from functools import cache
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image, ImageOps

from vsehub.io.arrays import FORMATS

SIDE = 128


def render_page(template: str, **values: object) -> str:
    """The page from `template` (a file beside this one) and `values`; a missing value is an error."""
    return page_environment().get_template(template).render(values)


@cache
def page_environment(*packages: str) -> jinja2.Environment:
    """The environment for the templates beside this file, and those in the folder `templates` of other packages."""
    loaders = [jinja2.PackageLoader(package, "templates") for package in packages]
    environment = jinja2.Environment(
        loader=jinja2.ChoiceLoader([*loaders, jinja2.PackageLoader("vsehub.report.pages", "")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["image"] = lambda picture: data_url("image/svg+xml", picture.svg)  # of a plot
    return environment


def data_url(kind: str, content: bytes) -> str:
    """A data URL of some bytes of a media type."""
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


def thumbnail(picture: str | Path | np.ndarray, side: int = SIDE) -> bytes | None:
    """A JPEG of at most `side` x `side` pixels of an image file or of pixels (3, H, W), uint8 or floats in 0..1.

    It is never enlarged. None if the file is absent or damaged.
    """
    try:
        small = _of_pixels(picture) if isinstance(picture, np.ndarray) else _of_file(Path(picture), side)
    except Exception:  # Pillow's readers can raise almost anything for damaged files
        return None
    small.thumbnail((side, side), Image.Resampling.LANCZOS)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=82)
    return content.getvalue()


def _of_file(path: Path, side: int) -> Image.Image:
    """The picture, upright, with white in place of transparency."""
    if not path.is_file():  # reading a pipe would block
        raise FileNotFoundError("no such file")
    with Image.open(path, formats=FORMATS) as picture:
        picture.draft("RGB", (2 * side, 2 * side))  # a JPEG is read at a fraction of its size
        upright = ImageOps.exif_transpose(picture)
        if upright.has_transparency_data:
            clear = upright.convert("RGBA")
            upright = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
        return upright.convert("RGB")


def _of_pixels(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype.kind == "f":
        pixels = (np.nan_to_num(pixels.astype(np.float32)).clip(0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
