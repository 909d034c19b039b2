"""Rendering of page templates, with plots and thumbnails that are embedded in the page."""

import base64
import io
from functools import cache
from pathlib import Path

import jinja2
import numpy as np
from PIL import Image

from vsehub.checks import InputError
from vsehub.data.photos.pictures import read_crop, whole_crop

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
    if isinstance(picture, np.ndarray):
        small = _of_pixels(picture)
        small.thumbnail((side, side), Image.Resampling.LANCZOS)
    else:
        try:
            pixels = read_crop(str(picture), lambda w, h: whole_crop(w, h, min(side, max(w, h)), "longest"), "lanczos")
        except InputError:
            return None
        small = Image.fromarray(pixels)
    content = io.BytesIO()
    small.save(content, "JPEG", quality=82)
    return content.getvalue()


def _of_pixels(pixels: np.ndarray) -> Image.Image:
    if pixels.dtype.kind == "f":
        pixels = (np.nan_to_num(pixels.astype(np.float32)).clip(0, 1) * 255).round().astype(np.uint8)
    return Image.fromarray(np.ascontiguousarray(pixels.transpose(1, 2, 0)))
