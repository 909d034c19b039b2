"""Noise in the training captions: who is permuted, how many, what a file says, what stays as it was."""

import zlib
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data import CaptionedImages, pairs_by_caption
from vsehub.data.noise import Noise, NoisySource, draw_noise, read_index


def split(images=40, each=5, start=0):
    """Images of as many captions each, or of 1, 2, 3, 1, ... where `each` is None; captions in shuffled order."""
    counts = np.arange(images) % 3 + 1 if each is None else np.full(images, each)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(images), counts))
    rows = np.arange(start, start + images, dtype=np.float32)[:, None]
    return CaptionedImages(rows, [f"caption {number}" for number in range(len(index))], pairs_by_caption(index))


class Source:
    name = "made up"

    def __init__(self, train=None):
        self.splits = {"train": train or split(), "val": split(7, start=100), "test": split(9, start=200)}

    def load(self, name):
        return self.splits[name]


def noisy(train, **settings):
    source = NoisySource(Source(train), Noise(**settings))
    return source, source.load("train")


@looped("each", [5, 1, None])
@looped("rate", [0.2, 0.37, 0.6, 0.99])
def test_captions_are_permuted_singly(each, rate):
    clean = split(each=each)
    source, got = noisy(clean, protocol="captions", rate=rate, seed=3)
    assert Counter(got.pairs[:, 0].tolist()) == Counter(clean.pairs[:, 0].tolist())
    assert (got.captions, got.images is clean.images) == (clean.captions, True)
    chosen = round(rate * len(clean.captions))
    changed = sum(a != b for a, b in zip(got.pairs[:, 0].tolist(), clean.pairs[:, 0].tolist(), strict=True))
    assert chosen - 20 <= changed <= chosen
    assert (source.metadata["changed_captions"], source.metadata["changed"]) == (changed, changed / len(clean.captions))


@looped("each", [5, None])
@looped("rate", [0.2, 0.6])
def test_images_are_permuted_with_all_their_captions(each, rate):
    clean = split(each=each)
    got = noisy(clean, protocol="images", rate=rate)[1]
    moved_to = dict(zip(clean.pairs[:, 0].tolist(), got.pairs[:, 0].tolist(), strict=True))
    assert [moved_to[before] for before in clean.pairs[:, 0].tolist()] == got.pairs[:, 0].tolist()
    assert sorted(moved_to.values()) == list(range(40))
    assert round(rate * 40) - 8 <= sum(a != b for a, b in moved_to.items()) <= round(rate * 40)


@pytest.mark.parametrize(("protocol", "checksum"), [("captions", 1494287849), ("images", 2584753384)])
def test_the_draw_is_that_of_every_version(protocol, checksum):
    """Of 79 captions 29 are chosen, of 40 images 15."""
    assert zlib.crc32(draw_noise(protocol, 0.37, 3, split(each=None)).tobytes()) == checksum


def test_the_seed_decides_and_only_training_changes():
    settings = {"protocol": "captions", "rate": 0.4}
    first, again, other = (noisy(split(), seed=seed, **settings)[1].pairs[:, 0] for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    source, got = noisy(split(), **settings)
    assert all(source.load(name) is source._source.load(name) for name in ("val", "test"))
    assert got.fingerprint() != split().fingerprint() == source.metadata["clean_fingerprint"]


@pytest.mark.parametrize("protocol", ["captions", "images"])
def test_an_index_written_is_the_index_read(tmp_path, protocol):
    source, got = noisy(split(each=None), protocol=protocol, rate=0.4, seed=5)
    source.write_index(tmp_path / "index.npy")
    other, again = noisy(split(each=None), index=tmp_path / "index.npy", rate=0.4, seed=9)
    assert np.array_equal(again.pairs[:, 0], got.pairs[:, 0])
    assert other.metadata == source.metadata | {"index": str(tmp_path / "index.npy"), "seed": None}


def test_published_files(tmp_path):
    """NCR: (T,) image numbers; RDE: (T,) caption positions; DECL: (I,) image numbers."""
    clean = split(each=5)
    ncr = noisy(clean, protocol="captions", rate=0.4)[1].pairs[:, 0]
    positions = np.arange(200)
    positions[[3, 50, 120]] = [50, 120, 3]
    rde = clean.pairs[:, 0].copy()
    rde[[50, 120, 3]] = clean.pairs[:, 0][[3, 50, 120]]
    decl = np.arange(40, dtype=np.int32)
    decl[[3, 7, 9]] = [7, 9, 3]
    expected = {"ncr": (ncr, ncr), "rde": (positions, rde), "decl": (decl, decl[clean.pairs[:, 0]])}
    for name, (numbers, images) in expected.items():
        np.save(tmp_path / f"{name}.npy", numbers)
        assert np.array_equal(noisy(clean, index=tmp_path / f"{name}.npy")[1].pairs[:, 0], images)
    for settings in (("captions", 0.2), ("images",)):
        with pytest.raises(InputError, match=r"ncr\.npy"):
            read_index(tmp_path / "ncr.npy", clean, *settings)


def test_one_caption_an_image_leaves_the_protocol_open(tmp_path):
    clean, index = split(each=1), tmp_path / "index.npy"
    np.save(index, np.roll(np.arange(40), 1))
    with pytest.raises(InputError, match=r"data\.noise\.protocol"):
        noisy(clean, index=index)
    assert np.array_equal(noisy(clean, index=index, protocol="images")[1].pairs[:, 0], (clean.pairs[:, 0] - 1) % 40)


@looped(
    "numbers",
    [np.zeros(200, np.int64), np.arange(40) + 1, np.arange(41), np.zeros((40, 5), np.int64), np.zeros(200), b"nothing"],
)
def test_bad_files(tmp_path, numbers):
    path = tmp_path / "bad.npy"
    path.write_bytes(numbers) if isinstance(numbers, bytes) else np.save(path, numbers)
    with pytest.raises(InputError, match=r"bad\.npy"):
        read_index(path, split())


CAPTIONS = {"protocol": "captions", "rate": 0.2}


@looped(
    ("clean", "settings", "named"),
    [
        (split(1), CAPTIONS | {"rate": 0.9}, "no caption of the 1"),
        (replace(split(2), pairs=np.array([*split(2).pairs, [0, 1], [1, 1]])), CAPTIONS, "several"),
        *((None, CAPTIONS | {"protocol": protocol}, r"noise\.protocol") for protocol in ("words", None)),
        *((None, CAPTIONS | {"rate": rate}, r"noise\.rate") for rate in (1.0, -0.1, "0.2", None)),
        (None, CAPTIONS | {"seed": -1}, r"noise\.seed"),
    ],
)
def test_refusals(clean, settings, named):
    with pytest.raises(InputError, match=named):
        noisy(clean, **settings)
