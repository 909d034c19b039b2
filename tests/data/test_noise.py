"""Noise in the training captions: who is permuted, how many, what a file says, what stays as it was."""

import json
import zlib
from collections import Counter
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data import CaptionedImages
from vsehub.data.noise import Noise, NoiseIndex, NoisySource, draw_noise, read_index


def split(images=40, each=5, start=0):
    """Images of as many captions each, or of 1, 2, 3, 1, ... where `each` is None; captions in shuffled order."""
    counts = np.arange(images) % 3 + 1 if each is None else np.full(images, each)
    index = np.random.default_rng(1).permutation(np.repeat(np.arange(images), counts))
    rows = np.arange(start, start + images, dtype=np.float32)[:, None]
    return CaptionedImages(rows, [f"caption {number}" for number in range(len(index))], index)


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
    assert Counter(got.image_index.tolist()) == Counter(clean.image_index.tolist())
    assert (got.captions, got.images is clean.images) == (clean.captions, True)
    chosen = round(rate * len(clean.captions))
    changed = sum(a != b for a, b in zip(got.image_index, clean.image_index, strict=True))
    assert chosen - 20 <= changed <= chosen
    assert (source.facts["changed_captions"], source.facts["changed"]) == (changed, changed / len(clean.captions))


@pytest.mark.parametrize("each", [5, None], ids=["five", "uneven"])
@pytest.mark.parametrize("rate", [0.2, 0.6])
def test_images_are_permuted_with_all_their_captions(each, rate):
    clean = split(each=each)
    got = noisy(clean, protocol="images", rate=rate)[1]
    moved_to = {}
    for before, after in zip(clean.image_index, got.image_index, strict=True):
        assert moved_to.setdefault(before, after) == after
    assert sorted(moved_to.values()) == list(range(40))
    assert round(rate * 40) - 8 <= sum(a != b for a, b in moved_to.items()) <= round(rate * 40)


@pytest.mark.parametrize(("protocol", "checksum"), [("captions", 1494287849), ("images", 2584753384)])
def test_the_draw_is_that_of_every_version(protocol, checksum):
    """Of 79 captions 29 are chosen, of 40 images 15."""
    assert zlib.crc32(draw_noise(Noise(protocol, 0.37, seed=3), split(each=None)).numbers.tobytes()) == checksum


def test_the_seed_decides_and_only_training_changes():
    settings = {"protocol": "captions", "rate": 0.4}
    one, again, other = (noisy(split(), seed=seed, **settings)[1].image_index for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)
    source, got = noisy(split(), **settings)
    assert all(source.load(name) is source._source.load(name) for name in ("val", "test"))
    assert got.fingerprint() != split().fingerprint() == source.facts["clean_fingerprint"]


@pytest.mark.parametrize("protocol", ["captions", "images"])
def test_an_index_written_is_the_index_read(tmp_path, protocol):
    source, got = noisy(split(each=None), protocol=protocol, rate=0.4, seed=5)
    source.index.write(tmp_path / "index.npz")
    for settings in ({}, {"protocol": protocol}, {"protocol": protocol, "rate": 0.4, "seed": 9}):
        other, again = noisy(split(each=None), index=tmp_path / "index.npz", **settings)
        assert np.array_equal(again.image_index, got.image_index)
        assert other.facts == source.facts | {"index": str(tmp_path / "index.npz")}


def test_published_files(tmp_path):
    """NCR: (T,) image numbers; RDE: (T,) caption positions; DECL: (I,) image numbers."""
    clean, rng = split(each=5), np.random.default_rng(4)
    ncr = noisy(clean, protocol="captions", rate=0.4)[1].image_index
    positions = np.arange(200)
    chosen = rng.permutation(200)[:80]
    positions[chosen] = rng.permutation(chosen)
    decl = np.arange(40)
    decl[[3, 7, 9]] = [7, 9, 3]
    pairs = [(clean.image_index[row], position) for row, position in enumerate(positions)]
    expected = {
        "ncr": ("captions", ncr),
        "rde": ("captions", np.array([image for image, _ in sorted(pairs, key=lambda pair: pair[1])])),
        "decl": ("images", np.array([{3: 7, 7: 9, 9: 3}.get(image, image) for image in clean.image_index])),
    }
    for name, numbers in {"ncr": ncr, "rde": positions, "decl": decl.astype(np.int32)}.items():
        np.save(tmp_path / f"{name}.npy", numbers)
        index = read_index(tmp_path / f"{name}.npy", clean)
        assert index.protocol == expected[name][0]
        assert np.array_equal(index.image_index(clean), expected[name][1])
    assert read_index(tmp_path / "ncr.npy", clean, "captions", 0.4).rate == 0.4
    for asked in (("captions", 0.2), ("images",)):
        with pytest.raises(InputError, match=r"ncr\.npy"):
            read_index(tmp_path / "ncr.npy", clean, *asked)


def header_of_more(path):
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})


def stored(path, start=0, **changed):
    """Our own file of these or other data, with other facts, those of value None left out."""
    noisy(split(start=start), protocol="captions", rate=0.2)[0].index.write(path)
    arrays = dict(np.load(path))
    facts = json.loads(str(arrays["facts"])) | changed
    np.savez(path, numbers=arrays["numbers"], facts=np.array(json.dumps({k: v for k, v in facts.items() if v != ""})))


def cut(path):
    stored(path)
    path.write_bytes(path.read_bytes()[:200])


@pytest.mark.parametrize(
    ("name", "write"),
    [
        ("bad.npy", np.zeros(200, np.int64)),
        ("bad.npy", np.arange(40) + 1),
        ("bad.npy", np.arange(40) - 1),
        ("bad.npy", np.arange(41)),
        ("bad.npy", np.zeros((40, 5), np.int64)),
        ("bad.npy", np.zeros(200)),
        ("bad.npy", np.array([{}] * 200)),
        ("bad.npy", header_of_more),
        ("absent.npz", lambda path: None),
        ("bad.npz", cut),
        ("bad.npz", lambda path: path.write_bytes(b"nothing of ours")),
        ("bad.npz", partial(stored, start=1)),
        ("bad.npz", lambda path: np.savez(path, numbers=np.arange(200), facts=np.array('["not ours"]'))),
        *(
            ("bad.npz", partial(stored, **{key: value}))
            for key, value in (
                *(("version", 2), ("rate", "0.2"), ("rate", True), ("rate", 1.5), ("rate", "")),
                *(("protocol", "rows"), ("protocol", "images")),
            )
        ),
    ],
)
def test_bad_files(tmp_path, name, write):
    path = tmp_path / name
    if isinstance(write, np.ndarray):
        np.save(path, write, allow_pickle=True)
    else:
        write(path)
    with pytest.raises(InputError, match=name):
        read_index(path, split())


def test_a_file_of_other_settings_or_from_before_the_first_version(tmp_path):
    stored(tmp_path / "index.npz", version="")
    drawn = noisy(split(), protocol="captions", rate=0.2)[1]
    assert np.array_equal(noisy(split(), index=tmp_path / "index.npz")[1].image_index, drawn.image_index)
    for settings in ({"rate": 0.4}, {"protocol": "images"}):
        with pytest.raises(InputError, match=r"index\.npz"):
            noisy(split(), index=tmp_path / "index.npz", **settings)


def test_one_caption_an_image_leaves_the_protocol_open(tmp_path):
    clean = split(each=1)
    np.save(tmp_path / "index.npy", np.roll(np.arange(40), 1))
    with pytest.raises(InputError, match=r"data\.noise\.protocol"):
        noisy(clean, index=tmp_path / "index.npy")
    found = noisy(clean, index=tmp_path / "index.npy", protocol="images")[1].image_index
    assert np.array_equal(found, (clean.image_index - 1) % 40)


@pytest.mark.parametrize(
    ("clean", "settings", "said"),
    [
        (split(1), {"protocol": "captions", "rate": 0.9}, "no caption of the 1"),
        (split(1), {"protocol": "images", "rate": 0.9}, "no caption of the 1"),
        (replace(split(2), pairs=np.array([[0, 0], [1, 0]])), {"protocol": "captions", "rate": 0.5}, "several"),
        (None, {"protocol": "words", "rate": 0.2}, r"noise\.protocol"),
        *((None, {"protocol": "captions", "rate": rate}, r"noise\.rate") for rate in (1.0, -0.1, "0.2", None)),
        (None, {"rate": 0.2}, r"noise\.protocol"),
        (None, {"protocol": "captions", "rate": 0.2, "seed": -1}, r"noise\.seed"),
    ],
)
def test_refusals(clean, settings, said):
    with pytest.raises(InputError, match=said):
        noisy(clean, **settings)


def test_noise_is_wanted_by_a_rate_or_an_index():
    assert [Noise(**one).wanted for one in ({}, {"protocol": "captions", "rate": 0}, {"index": "a.npz"})] == [0, 0, 1]


def test_a_run_that_goes_on_takes_its_own_index(tmp_path):
    """Even one that no seed draws; a seed of other noise is refused."""
    kept = tmp_path / "kept.npz"
    clean = split()
    NoiseIndex("images", 0.2, 4, np.roll(np.arange(40), 1), clean.fingerprint()).write(kept)
    noise = Noise("images", 0.2, seed=4)
    got = NoisySource(Source(), noise, kept).load("train")
    assert np.array_equal(got.image_index, (clean.image_index - 1) % 40)
    with pytest.raises(InputError, match="seed 4"):
        NoisySource(Source(), Noise("images", 0.2, seed=5), kept).load("train")
    fresh = NoisySource(Source(), noise, tmp_path / "not written yet.npz").load("train")
    assert np.array_equal(fresh.image_index, draw_noise(noise, clean).image_index(clean))
