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


def assert_halves(content, sizes):
    small = Image.open(io.BytesIO(content))
    assert small.format == "JPEG"
    assert small.size in sizes
    for place, colour in ((0.15, RED), (0.85, GREEN)):
        pixel = small.getpixel((small.width // 2, int(place * small.height)))
        assert np.abs(np.array(pixel, dtype=int) - colour).max() < 12


def test_files_are_made_small_and_upright(tmp_path):
    wide, turned, clear = tmp_path / "wide.jpg", tmp_path / "turned.jpg", tmp_path / "clear.png"
    halves(900, 300).save(wide)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter: what is stored on the left is shown on top
    halves(300, 900).rotate(90, expand=True).save(turned, exif=exif)
    Image.new("RGBA", (40, 20), (0, 0, 0, 0)).save(clear)
    assert_halves(thumbnail(wide), {(128, 43), (128, 42)})
    assert_halves(thumbnail(turned), {(43, 128), (42, 128)})
    white = Image.open(io.BytesIO(thumbnail(clear)))
    assert white.size == (40, 20), "it was enlarged"
    assert min(white.getpixel((20, 10))) > 243


@pytest.mark.parametrize("kind", ["uint8", "float16", "float64"])
def test_pixels(kind):
    pixels = np.asarray(halves(64, 32)).transpose(2, 0, 1)
    if kind != "uint8":
        pixels = (pixels / 255).astype(kind)
        pixels[:, -1, -1] = (np.nan, 7, -3)
    assert_halves(thumbnail(pixels, 32), {(32, 16)})


def test_what_is_no_picture(tmp_path):
    whole = io.BytesIO()
    Image.effect_noise((300, 300), 90).save(whole, "JPEG")
    damaged = {"short.jpg": whole.getvalue()[:2000], "words.png": b"these are words", "empty.gif": b""}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.png")
    for name in (*damaged, "folder.jpg", "pipe.png", "absent.jpg"):
        assert thumbnail(tmp_path / name) is None, name
