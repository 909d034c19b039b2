import io
import os
import pickle

import numpy as np
import pytest
import torch
from looped import looped
from PIL import EpsImagePlugin, Image
from PIL.JpegImagePlugin import JpegImageFile
from torch.utils.data import DataLoader
from torchvision.transforms import v2

from vsehub.checks import InputError
from vsehub.data.photos.pictures import Pictures, hash_if_intact, random_crop
from vsehub.report.pages.templates import thumbnail

# What the EXIF orientations say has to be done to the stored pixels, after the standard's table.
UPRIGHT = {
    1: lambda stored: stored,
    2: np.fliplr,
    3: lambda stored: np.rot90(stored, 2),
    4: np.flipud,
    5: lambda stored: stored.transpose(1, 0, 2),
    6: lambda stored: np.rot90(stored, -1),
    7: lambda stored: np.rot90(stored, 2).transpose(1, 0, 2),
    8: np.rot90,
}


def noise(height, width, seed=0):
    return np.random.default_rng(seed).integers(256, size=(height, width, 3), dtype=np.uint8)


def saved(path, pixels, **options):
    picture = pixels if isinstance(pixels, Image.Image) else Image.fromarray(pixels)
    picture.save(path, **options)
    return str(path)


def by_torchvision(path, size, resize, crop=v2.CenterCrop):
    """(crops, 3, size, size) of the transforms that the field uses."""
    cropped = v2.Compose([v2.Resize(resize), crop(size)])(Image.open(path).convert("RGB"))
    return np.stack(
        [np.asarray(picture).transpose(2, 0, 1) for picture in (cropped if isinstance(cropped, tuple) else [cropped])]
    )


def off(pixels, other):
    return np.abs(pixels.astype(int) - other).max()


SIZES = [(48, 64), (64, 48), (50, 50), (37, 91), (20, 33), (33, 20), (201, 67), (3, 2), (1, 1), (128, 1), (1, 7)]


@pytest.mark.parametrize(("size", "resize"), [(32, 32), (32, 37), (31, 40)])
def test_a_picture_is_torchvisions_resize_and_centre_crop(tmp_path, size, resize):
    files = [saved(tmp_path / f"{n}.png", noise(*shape, n)) for n, shape in enumerate(SIZES)]
    pictures = Pictures(files, size, resize)[:]
    assert pictures.shape == (len(SIZES), 3, size, size)
    for path, picture in zip(files, pictures, strict=True):
        np.testing.assert_array_equal(picture, by_torchvision(path, size, resize)[0])


@pytest.mark.parametrize("shape", [(48, 63), (63, 48), (33, 20), (1, 7)])
def test_ten_crops_are_torchvisions_in_another_order(tmp_path, shape):
    path = saved(tmp_path / "one.png", noise(*shape))
    # torchvision crops the mirrored picture: its upper left corner is the mirror of the upper right one.
    theirs = by_torchvision(path, 32, 40, v2.TenCrop)[[0, 1, 2, 3, 4, 6, 5, 8, 7, 9]]
    ten, two = (Pictures([path], 32, 40, crops=crops) for crops in (10, 2))
    np.testing.assert_array_equal(two[0], ten[0][[4, 9]])
    np.testing.assert_array_equal(ten[[0, 0]], np.stack([theirs] * 2))
    assert ten.shape == (1, *theirs.shape)


def test_indexing_is_an_arrays(tmp_path):
    pictures = Pictures([saved(tmp_path / f"{n}.png", noise(9 + n, 12, n)) for n in range(5)], 8, 9)
    every = np.stack([pictures[n] for n in range(5)])
    assert (len(pictures), pictures.shape, pictures.dtype) == (5, every.shape, every.dtype)
    mask, square = np.array([True, False, False, True, False]), np.array([[0, 1], [4, 4]])
    for index in (-1, np.int64(2), slice(None), slice(4, 1, -2), slice(3, 3), [3, 3, -5], mask, square):
        np.testing.assert_array_equal(pictures[index], every[index])
    for index in (5, -6, [0, 5]):
        with pytest.raises(IndexError):
            pictures[index]


def solid(mode, value, size=(7, 5)):
    return Image.new(mode, size, value)


def palette(transparent):
    picture = solid("P", 1)
    picture.putpalette([10, 20, 30, 200, 100, 50])
    if transparent is not None:
        picture.info["transparency"] = transparent
    return picture


def clear(mode, colour):
    picture = solid(mode, colour)
    picture.info["transparency"] = colour
    return picture


@looped(
    ("ending", "picture", "expected"),
    [
        ("png", solid("RGB", (1, 2, 3)), (1, 2, 3)),
        ("bmp", solid("RGB", (1, 2, 3)), (1, 2, 3)),
        ("png", solid("L", 77), (77, 77, 77)),
        ("jpg", solid("L", 77), (77, 77, 77)),
        ("png", solid("1", 1), (255, 255, 255)),
        ("png", solid("LA", (77, 0)), (255, 255, 255)),
        ("png", solid("LA", (77, 255)), (77, 77, 77)),
        ("png", solid("RGBA", (255, 0, 100, 51)), (255, 204, 224)),
        ("webp", solid("RGBA", (9, 9, 9, 0)), (255, 255, 255)),
        ("png", clear("RGB", (1, 2, 3)), (255, 255, 255)),
        ("png", clear("L", 9), (255, 255, 255)),
        ("png", palette(None), (200, 100, 50)),
        ("png", palette(1), (255, 255, 255)),
        ("png", palette(0), (200, 100, 50)),
        ("gif", palette(1), (255, 255, 255)),
        ("jpg", solid("CMYK", (0, 255, 255, 0)), (255, 0, 0)),  # stored inverted, with Adobe's marker
        ("tif", solid("CMYK", (255, 0, 255, 51)), (0, 204, 0)),
        ("tif", solid("YCbCr", (120, 128, 128)), (120, 120, 120)),
    ],
)
def test_every_kind_of_pixel_becomes_rgb(tmp_path, ending, picture, expected):
    options = {"jpg": {"quality": 100}, "webp": {"lossless": True, "exact": True}}.get(ending, {})
    path = saved(tmp_path / f"one.{ending}", picture, **options)
    pixels = Pictures([path], 4, 5)[0]
    assert off(pixels, np.array(expected)[:, None, None]) <= (ending == "jpg")


@looped("orientation", range(1, 9))
@looped("ending", ["png", "tif", "webp", "jpg"])
def test_exif_orientation_is_applied(tmp_path, orientation, ending):
    stored = noise(3, 5).repeat(16, axis=0).repeat(16, axis=1)
    exif = Image.Exif()
    exif[0x0112] = orientation
    options = {"jpg": {"quality": 100, "subsampling": 0}, "webp": {"lossless": True}}.get(ending, {})
    path = saved(tmp_path / f"one.{ending}", stored, exif=exif, **options)
    upright = saved(tmp_path / "upright.png", np.ascontiguousarray(UPRIGHT[orientation](stored)))
    upper, expected = (Pictures([name], 30, 40, crops=10)[0] for name in (path, upright))
    assert off(upper, expected) <= (4 if ending == "jpg" else 0)


@pytest.mark.parametrize("orientation", [1, 6])
def test_big_jpegs_are_decoded_smaller_and_look_the_same(tmp_path, orientation, monkeypatch):
    drafts, draft = [], JpegImageFile.draft
    monkeypatch.setattr(JpegImageFile, "draft", lambda *arguments: drafts.append(draft(*arguments)))
    exif = Image.Exif()
    exif[0x0112] = orientation
    y, x = np.mgrid[:601, :803] / [[[601]], [[803]]]
    pixels = np.stack([255 * x, 255 * y, 200 * (x > y)], axis=2).astype(np.uint8)  # smooth, but for an edge
    path = saved(tmp_path / "one.jpg", pixels, exif=exif, quality=95)
    full = saved(tmp_path / "full.png", np.ascontiguousarray(UPRIGHT[orientation](pixels)))
    for size, resize in ((64, 70), (64, 76)):
        picture = Pictures([path], size, resize)[0]
        assert np.abs(picture.astype(int) - by_torchvision(full, size, resize)[0]).mean() < 1.5
    assert [result[1] for result in drafts] == [(0, 0, 803 / scale, 601 / scale) for scale in (4, 2)]


def test_long_pictures_take_no_more_memory_than_others(tmp_path):
    """Resized as a whole, these would be 15 gigabytes each."""
    files = [
        saved(tmp_path / f"{n}.png", solid("RGB", (5, 6, 7), size)) for n, size in enumerate([(60000, 1), (1, 60000)])
    ]
    ten, single = Pictures(files, 224, 256, crops=10)[:], Pictures(files, 224, 256)
    for pixels in (ten, single[:], single.augmented(np.array([0, 1]), np.array([0, 1]), (0,))):
        assert (pixels == np.array([5, 6, 7])[:, None, None]).all()


def encoded(kind):
    buffer = io.BytesIO()
    Image.fromarray(noise(64, 64)).save(buffer, kind)
    return buffer.getvalue()


@looped(
    "content",
    [
        encoded("JPEG")[:2000],
        encoded("JPEG")[:20],
        encoded("PNG")[:500] + b"damage" + encoded("PNG")[506:],
        b"<html>404 Not Found</html>",
        b"",
        Image.new("F", (4, 4), 0.5),
        Image.new("I;16", (4, 4)),
        Image.new("1", (20000, 20000)),  # a bomb
    ],
)
def test_damage_is_found_and_named(tmp_path, content):
    path = tmp_path / "one.jpg"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        content.save(path, format="PNG" if content.mode == "1" else "TIFF")
    assert isinstance(hash_if_intact(str(path)), InputError)
    with pytest.raises(InputError, match=r"one\.jpg"):
        Pictures([str(path)], 8, 8)[0]


@pytest.mark.parametrize("kind", ["EPS", "JPEG2000", "ICO", "PCX", "PPM"])
def test_other_formats_are_never_decoded_and_start_no_program(tmp_path, monkeypatch, kind):
    started = tmp_path / "started"
    (tmp_path / "gs").write_text(f"#!/bin/sh\ntouch {started}\nexit 1\n")
    (tmp_path / "gs").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None)
    path = saved(tmp_path / "one.jpg", noise(20, 20), format=kind)
    assert isinstance(hash_if_intact(path), InputError)
    with pytest.raises(InputError, match=r"one\.jpg"):
        Pictures([path], 8, 8)[0]
    assert thumbnail(path) is None
    assert not started.exists()


@pytest.fixture
def drawn(tmp_path):
    """Of two pictures the crops that are drawn. In the second red says x, green says y."""
    y, x = np.mgrid[:192, :256]
    path = saved(tmp_path / "one.png", np.stack([x, y, 0 * x], axis=2).astype(np.uint8))
    return Pictures([saved(tmp_path / "other.png", noise(30, 40)), path], 32, 36, augments=True).augmented


def test_draws_depend_on_their_own_key_alone(drawn):
    rows, draws = np.array([1, 0, 1, 1, 0, 1]), np.array([7, 3, 8, 9, 4, 7])
    crops = drawn(rows, draws, (5, 2))
    assert (crops.shape, crops.dtype) == ((6, 3, 32, 32), np.uint8)
    for row, draw, crop in zip(rows, draws, crops, strict=True):
        np.testing.assert_array_equal(drawn([row], [draw], (5, 2))[0], crop)
    others = [crops[2], crops[3], *(drawn([1], [7], seed)[0] for seed in ((5, 3), (6, 2), (5,)))]
    assert len({pixels.tobytes() for pixels in (crops[0], crops[5], *others)}) == 6
    many = drawn(np.ones(300, int), np.arange(300), (0, 0)).astype(float)
    assert 0.4 < (many[:, 0, 0, -1] < many[:, 0, 0, 0]).mean() < 0.6, "half of them are mirrored"


def test_crops_follow_torchvisions_law():
    """Mean and spread of place and size, against as many draws of torchvision's own."""
    rng, law, blank = np.random.default_rng(0), v2.RandomResizedCrop(8), [torch.empty(3, 200, 300)]
    ours = np.array([random_crop(300, 200, 8, rng)[:4] for _ in range(4000)])
    assert (ours >= (0, 0, 1, 1)).all()
    assert (ours[:, :2] + ours[:, 2:] <= (300, 200)).all()
    torch.manual_seed(0)
    parameters = [law.make_params(blank) for _ in range(4000)]
    theirs = np.array([[drawn_crop[key] for key in ("left", "top", "width", "height")] for drawn_crop in parameters])
    np.testing.assert_allclose(ours.mean(axis=0), theirs.mean(axis=0), atol=4 * 60 / 4000**0.5)
    np.testing.assert_allclose(ours.std(axis=0), theirs.std(axis=0), rtol=0.05)


def test_processes_and_pickles_change_nothing(tmp_path):
    pictures = Pictures([saved(tmp_path / f"{n}.jpg", noise(40, 50 + n, n)) for n in range(6)], 32, 36)
    expected = pictures[:]  # its threads must not be missed after the fork
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(pictures))[:], expected)
    loaded = DataLoader(pictures, batch_size=None, sampler=[[0, 1, 2], [3, 4, 5]], num_workers=2)
    np.testing.assert_array_equal(np.concatenate([np.asarray(rows) for rows in loaded]), expected)
