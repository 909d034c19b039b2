"""Thumbnails: small, upright, right in colour, and what is no picture is not fatal."""

import io
import os

import numpy as np
import pytest
from PIL import Image

from vsehub.report.pages.templates import thumbnail

RED, GREEN = (200, 30, 20), (20, 160, 40)


def halves(width, height):
    """Red on top, green below."""
    picture = Image.new("RGB", (width, height), RED)
    picture.paste(GREEN, (0, height // 2, width, height))
    return picture


def assert_halves(content, size):
    small = Image.open(io.BytesIO(content))
    assert (small.format, small.size) == ("JPEG", size)
    for place, colour in ((0.15, RED), (0.85, GREEN)):
        pixel = small.getpixel((small.width // 2, int(place * small.height)))
        assert pixel == pytest.approx(colour, abs=12)


def test_files_are_made_small_and_upright(tmp_path):
    files = [tmp_path / name for name in ("wide.jpg", "turned.jpg", "clear.png")]
    halves(900, 300).save(files[0])
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter: what is stored on the left is shown on top
    halves(300, 900).rotate(90, expand=True).save(files[1], exif=exif)
    Image.new("RGBA", (40, 20), (0, 0, 0, 0)).save(files[2])
    assert_halves(thumbnail(files[0]), (128, 43))
    assert_halves(thumbnail(files[1]), (43, 128))
    white = Image.open(io.BytesIO(thumbnail(files[2])))
    assert white.size == (40, 20), "it was enlarged"
    assert min(white.getpixel((20, 10))) > 243


@pytest.mark.parametrize("kind", ["uint8", "float16", "float64"])
def test_pixels(kind):
    pixels = np.asarray(halves(64, 32)).transpose(2, 0, 1)
    if kind != "uint8":
        pixels = (pixels / 255).astype(kind)
        pixels[:, -1, -1] = (np.nan, 7, -3)
    assert_halves(thumbnail(pixels, 32), (32, 16))


def test_what_is_no_picture(tmp_path):
    halves(300, 300).save(tmp_path / "short.jpg")
    os.truncate(tmp_path / "short.jpg", 500)
    (tmp_path / "words.png").write_bytes(b"these are words")
    os.mkfifo(tmp_path / "pipe.png")
    for name in ("short.jpg", "words.png", "pipe.png", "absent.jpg", ""):
        assert thumbnail(tmp_path / name) is None, name
