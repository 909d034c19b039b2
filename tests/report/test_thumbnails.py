"""Thumbnails: small, upright, right in colour, and what is no picture is counted, not fatal."""

import base64
import io
import os

import numpy as np
import pytest
from PIL import Image

from vsehub.checks import InputError
from vsehub.report.pages.templates import Thumbnails

RED, GREEN = (200, 30, 20), (20, 160, 40)


def opened(url):
    kind, _, content = url.partition(",")
    assert kind == "data:image/jpeg;base64"
    return Image.open(io.BytesIO(base64.b64decode(content)))


def near(pixel, colour):
    return np.abs(np.array(pixel, dtype=int) - colour).max() < 12


def halves(width, height):
    """Red on top, green below."""
    picture = Image.new("RGB", (width, height), RED)
    picture.paste(GREEN, (0, height // 2, width, height))
    return picture


def test_files_are_made_small_and_upright(tmp_path):
    wide, turned, clear = tmp_path / "wide.jpg", tmp_path / "turned.jpg", tmp_path / "clear.png"
    halves(900, 300).save(wide)
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter: what is stored on the left is shown on top
    halves(300, 900).rotate(90, expand=True).save(turned, exif=exif)
    Image.new("RGBA", (40, 20), (0, 0, 0, 0)).save(clear)
    thumbnails = Thumbnails()
    small = opened(thumbnails(wide, "wide"))
    assert small.size in {(128, 43), (128, 42)}
    assert near(small.getpixel((64, 5)), RED)
    assert near(small.getpixel((64, 38)), GREEN)
    upright = opened(thumbnails(turned, "turned"))
    assert upright.size in {(43, 128), (42, 128)}
    assert near(upright.getpixel((20, 10)), RED)
    assert near(upright.getpixel((20, 120)), GREEN)
    white = opened(thumbnails(clear, "clear"))
    assert white.size == (40, 20), "it was enlarged"
    assert near(white.getpixel((20, 10)), (255, 255, 255))
    assert thumbnails.missing == []


@pytest.mark.parametrize("kind", ["uint8", "float16", "float32", "float64"])
def test_pixels(kind):
    pixels = np.asarray(halves(64, 32)).transpose(2, 0, 1)
    if kind != "uint8":
        pixels = (pixels / 255).astype(kind)
        pixels[:, -1, -1] = (np.nan, 7, -3)
    small = opened(Thumbnails(side=32)(pixels, "pixels"))
    assert small.size == (32, 16)
    assert near(small.getpixel((16, 3)), RED)
    assert near(small.getpixel((16, 12)), GREEN)


def test_what_is_no_picture_is_counted(tmp_path):
    whole = io.BytesIO()
    Image.effect_noise((300, 300), 90).save(whole, "JPEG")
    damaged = {"short.jpg": whole.getvalue()[:2000], "words.png": b"these are words", "empty.gif": b""}
    for name, content in damaged.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder.jpg").mkdir()
    names = [*damaged, "folder.jpg", "absent.jpg"]
    thumbnails = Thumbnails()
    assert [thumbnails(tmp_path / name, name) for name in names] == [None] * len(names)
    assert thumbnails.missing == names


def test_what_could_not_be_shown_is_said(tmp_path, caplog):
    halves(9, 9).save(tmp_path / "whole.png")
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "words.png").write_text("these are words")
    thumbnails = Thumbnails()
    thumbnails(tmp_path / "whole.png", "whole")
    thumbnails.warn()
    assert not caplog.records
    assert thumbnails(tmp_path / "pipe.png", "pipe") is None
    assert thumbnails(tmp_path / "words.png", "words") is None
    thumbnails.absent("absent", "no file")
    thumbnails(np.asarray(halves(8, 8)).transpose(2, 0, 1), "pixels")
    thumbnails.warn()
    first = f"pipe ({tmp_path / 'pipe.png'}: no such file)"
    assert caplog.messages == [f"3 of 5 images of the page could not be shown, the first: {first}"]


@pytest.mark.parametrize(
    ("pixels", "message"),
    [
        (np.zeros((32, 32, 3), np.uint8), r"shape \(32, 32, 3\); expected \(3, height, width\)"),
        (np.zeros((3, 0, 5), np.uint8), r"shape \(3, 0, 5\)"),
        (np.zeros((3, 4, 4), np.int64), "int64; expected uint8, or floats"),
    ],
)
def test_arrays_that_are_no_pictures_are_refused(pixels, message):
    with pytest.raises(InputError, match=message):
        Thumbnails()(pixels, "pixels")
