"""Noise in the training captions: who is permuted, how many, what a file says, what stays as it was."""

import io
import json
import zipfile
from collections import Counter

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


def test_exactly_the_share_is_chosen(monkeypatch):
    """Permuting is made to move everything, so that the chosen show; those that chance leaves in place cannot hide."""

    class Rolled:
        def permutation(self, what):
            return np.random.default_rng(0).permutation(what) if isinstance(what, int) else np.roll(what, 1)

    monkeypatch.setattr(
        "vsehub.data.noise.np.random.default_rng",
        lambda key, make=np.random.default_rng: Rolled() if key != 0 else make(0),
    )
    for size in (10, 11, 40):
        for rate in (0.2, 0.25, 0.5, 0.9):
            index = draw_noise(Noise("images", rate), split(size))
            assert (index.numbers != np.arange(size)).sum() == round(rate * size)


def test_the_seed_and_nothing_else_decides():
    settings = {"protocol": "captions", "rate": 0.4}
    one, again, other = (noisy(split(), seed=seed, **settings)[1].image_index for seed in (0, 0, 1))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_validation_and_test_are_as_they_were_and_training_is_told_apart():
    source, got = noisy(split(), protocol="captions", rate=0.6)
    assert source.name == "made up"
    assert all(source.load(name) is source._source.load(name) for name in ("val", "test"))
    assert got.fingerprint() != split().fingerprint()
    assert source.facts["clean_fingerprint"] == split().fingerprint()


def test_an_index_written_is_the_index_read(tmp_path):
    for protocol in ("captions", "images"):
        source, got = noisy(split(each=None), protocol=protocol, rate=0.4, seed=5)
        path = tmp_path / f"{protocol}.npz"
        source.index.write(path)
        for settings in ({}, {"protocol": protocol}, {"protocol": protocol, "rate": 0.4, "seed": 9}):
            other, again = noisy(split(each=None), index=path, **settings)
            assert np.array_equal(again.image_index, got.image_index)
            assert other.facts == source.facts | {"index": str(path)}


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
    with pytest.raises(InputError, match=r"rate is 0\.2, which is 40 of 200, but .* moves 7\d"):
        read_index(tmp_path / "ncr.npy", clean, "captions", 0.2)
    with pytest.raises(InputError, match="the protocol is images"):
        read_index(tmp_path / "ncr.npy", clean, "images")


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        (np.zeros(200, np.int64), "is no permutation of protocol captions"),
        (np.arange(40) + 1, "is no permutation of protocol images"),
        (np.arange(40) - 1, "is no permutation of protocol images"),
        (np.arange(41), "has 41 entries, but the training split has 200 captions and 40 images"),
        (np.zeros((40, 5), np.int64), r"holds int64 \(40, 5\)"),
        (np.zeros(200), "holds float64"),
        (np.array([{}] * 200), "cannot be read"),
        (np.arange(40), "no caption of the 40 training images came to another image"),
    ],
)
def test_bad_files(tmp_path, numbers, said):
    np.save(tmp_path / "bad.npy", numbers, allow_pickle=True)
    with pytest.raises(InputError, match=said):
        noisy(split(), index=tmp_path / "bad.npy")


def test_files_that_are_damaged_or_of_other_data(tmp_path):
    path = tmp_path / "noise.npz"
    noisy(split(), protocol="captions", rate=0.2)[0].index.write(path)
    with pytest.raises(InputError, match="was made of other training data"):
        noisy(split(start=1), index=path)
    for settings, said in (
        ({"rate": 0.4}, "rate 0.2, but rate 0.4 is asked"),
        ({"protocol": "images"}, "is of protocol captions"),
    ):
        with pytest.raises(InputError, match=said):
            noisy(split(), index=path, **settings)
    whole = path.read_bytes()
    for damaged in (whole[:200], b"", b"nothing of ours"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="cannot be read"):
            noisy(split(), index=path)
    np.savez(path, numbers=np.arange(200), facts=np.array(json.dumps(["not ours"])))
    with pytest.raises(InputError, match="does not say which protocol, rate, seed and data it is of"):
        noisy(split(), index=path)
    with pytest.raises(InputError, match="no such file or folder"):
        noisy(split(), index=tmp_path / "absent.npz")


def rewritten(path, **changed):
    """Our own file with other facts, those of value None left out."""
    stored = dict(np.load(path))
    facts = json.loads(str(stored["facts"])) | changed
    facts = {key: value for key, value in facts.items() if value is not None}
    np.savez(path, numbers=stored["numbers"], facts=np.array(json.dumps(facts)))


def test_versions_and_facts(tmp_path):
    path = tmp_path / "noise.npz"
    index = noisy(split(), protocol="captions", rate=0.2)[0].index
    index.write(path)
    assert json.loads(str(np.load(path)["facts"]))["version"] == 1
    assert "version" not in index.facts()
    rewritten(path, version=2)
    with pytest.raises(
        InputError,
        match=r"is of version 2 of its format, .* reads version 1\. Use the vsehub that wrote it, or a later",
    ):
        read_index(path, split())
    index.write(path)
    rewritten(path, version=None)
    assert np.array_equal(read_index(path, split()).numbers, index.numbers), "files before the first version"
    for changed in (
        {"rate": "0.2"},
        {"rate": True},
        {"rate": 1.5},
        {"protocol": "rows"},
        {"seed": "a"},
        {"rate": None},
    ):
        index.write(path)
        rewritten(path, **changed)
        with pytest.raises(InputError, match="does not say which protocol, rate, seed and data it is of"):
            read_index(path, split())


@pytest.mark.parametrize("name", ["index.npy", "stored.npz", "packed.npz"])
def test_files_that_claim_more_than_they_hold(tmp_path, name):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<i8", "fortran_order": False, "shape": (10**12,)})
    path = tmp_path / name
    path.write_bytes(content.getvalue())
    if name.endswith(".npz"):
        with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED if name[0] == "s" else zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("numbers.npy", content.getvalue())
            archive.writestr("facts.npy", content.getvalue())
    with pytest.raises(InputError, match=name):
        read_index(path, split())


def test_one_caption_an_image_leaves_the_protocol_open(tmp_path):
    clean = split(each=1)
    np.save(tmp_path / "index.npy", np.roll(np.arange(40), 1))
    with pytest.raises(InputError, match=r"give data\.noise\.protocol"):
        noisy(clean, index=tmp_path / "index.npy")
    found = noisy(clean, index=tmp_path / "index.npy", protocol="images")[1].image_index
    assert np.array_equal(found, (clean.image_index - 1) % 40)


@pytest.mark.parametrize("protocol", ["captions", "images"])
def test_one_image_has_no_wrong_one(protocol):
    with pytest.raises(InputError, match="no caption of the 1 training images"):
        noisy(split(1), protocol=protocol, rate=0.9)


def test_texts_of_several_images_are_refused():
    pairs = np.array([[0, 0], [1, 0], [1, 1]])
    clean = CaptionedImages(np.zeros((2, 1)), ["a", "b"], np.array([0, 1]), pairs=pairs)
    with pytest.raises(InputError, match="a text may belong to several"):
        noisy(clean, protocol="captions", rate=0.5)


@looped(
    ("settings", "said"),
    [
        ({"protocol": "words"}, "data.noise.protocol is 'words'"),
        ({"protocol": "captions", "rate": 1.0}, "expected a share from 0 to below 1"),
        ({"protocol": "captions", "rate": -0.1}, "expected a share from 0 to below 1"),
        ({"protocol": "captions", "rate": "0.2"}, "expected a share"),
        ({"rate": 0.2}, "data.noise.protocol is not set"),
        ({"seed": -1}, "data.noise.seed is -1"),
    ],
)
def test_bad_settings(settings, said):
    with pytest.raises(InputError, match=said):
        Noise(**settings)


def test_a_run_that_goes_on_takes_its_own_index(tmp_path):
    """Even one that no seed draws; a seed of other noise is refused."""
    kept = tmp_path / "kept.npz"
    clean = split()
    NoiseIndex("images", 0.2, 4, np.roll(np.arange(40), 1), clean.fingerprint()).write(kept)
    noise = Noise("images", 0.2, seed=4)
    got = NoisySource(Source(), noise, kept).load("train")
    assert np.array_equal(got.image_index, (clean.image_index - 1) % 40)
    with pytest.raises(InputError, match="started with the noise of seed 4"):
        NoisySource(Source(), Noise("images", 0.2, seed=5), kept).load("train")
    fresh = NoisySource(Source(), noise, tmp_path / "not written yet.npz").load("train")
    assert np.array_equal(fresh.image_index, draw_noise(noise, clean).image_index(clean))


def test_a_protocol_of_noise_needs_a_rate():
    with pytest.raises(InputError, match=r"data.noise.rate is not set; give a share such as 0.2, or 0 for clean"):
        Noise("captions")
    assert not Noise("captions", 0).wanted
    assert not Noise().wanted
    assert Noise("captions", index="index.npz").wanted
