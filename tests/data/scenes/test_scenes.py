"""The embedded scenes: the same for everyone, cached whole or not at all, with captions that make hubs."""

import re
from collections import defaultdict

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data.scenes import source as scenes
from vsehub.data.scenes.captions import GROUNDS, PLACES, WORDS
from vsehub.data.scenes.images import BACKGROUNDS, COLOURS, OUTLINES, RADII, TEXTURES, Scene, Thing, render
from vsehub.data.scenes.source import SIZES, Scenes


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    source = Scenes("tiny", cache=str(tmp_path_factory.mktemp("scenes")))
    return {split: source.load(split) for split in ("train", "val", "test")}


@pytest.fixture
def refuse_to_render(monkeypatch):
    def refuse(scene, rng):
        raise AssertionError("rendered although it was cached")

    return lambda: monkeypatch.setattr(scenes, "render", refuse)


def words(captions):
    return [re.findall("[a-z]+", caption.lower()) for caption in captions]


def test_a_split_has_five_captions_an_image_in_image_order(tiny):
    for split, count in zip(("train", "val", "test"), SIZES["tiny"], strict=True):
        data = tiny[split]
        assert data.images.shape == (count, 3, 64, 64)
        assert data.images.dtype == np.uint8
        assert isinstance(data.images, np.memmap)
        assert data.image_index.tolist() == [image for image in range(count) for _ in range(5)]
        assert len(data.captions) == 5 * count
        assert data.names[12] == f"scene-{split}-000012"
        assert len(set(data.names)) == count


def test_the_seed_alone_decides(tiny, tmp_path):
    again = Scenes("tiny", seed=0, cache=str(tmp_path / "again")).load("val")
    other = Scenes("tiny", seed=1, cache=str(tmp_path / "again")).load("val")
    assert np.array_equal(again.images, tiny["val"].images)
    assert again.captions == tiny["val"].captions
    assert again.fingerprint() == tiny["val"].fingerprint() != other.fingerprint()
    assert not np.array_equal(other.images, again.images)


def test_splits_differ_and_do_not_need_one_another(tiny, tmp_path):
    assert not np.array_equal(tiny["val"].images, tiny["test"].images)
    assert tiny["val"].captions != tiny["test"].captions
    source = Scenes("tiny", cache=str(tmp_path))
    assert source.load("test").fingerprint() == tiny["test"].fingerprint()
    assert sorted(path.name for path in source.folder.iterdir()) == ["test.json", "test.npy"]


def test_no_picture_is_in_two_splits(tiny):
    pictures = [image.tobytes() for data in tiny.values() for image in data.images]
    assert len(set(pictures)) == len(pictures)


def test_the_second_load_reads_the_cache(tmp_path, refuse_to_render):
    source = Scenes("tiny", cache=str(tmp_path))
    first = source.load("val")
    refuse_to_render()
    assert source.load("val").fingerprint() == first.fingerprint()
    with pytest.raises(AssertionError, match="although it was cached"):
        Scenes("tiny", seed=5, cache=str(tmp_path)).load("val")


def cut(data):
    return data[: len(data) // 2]


def cut_in_the_header(data):
    return data[:40]


def empty(data):
    return b""


def flip_the_last_byte(data):
    return data[:-1] + bytes([data[-1] ^ 1])


def other_json(data):
    return b"[1, 2]"


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("val.npy", cut),
        ("val.npy", cut_in_the_header),
        ("val.npy", empty),
        ("val.npy", flip_the_last_byte),
        ("val.json", cut),
        ("val.json", empty),
        ("val.json", other_json),
    ],
)
def test_a_damaged_cache_heals(tiny, tmp_path, refuse_to_render, name, damage):
    source = Scenes("tiny", cache=str(tmp_path))
    source.load("val")
    path = source.folder / name
    path.write_bytes(damage(path.read_bytes()))
    assert source.load("val").fingerprint() == tiny["val"].fingerprint()
    refuse_to_render()
    assert np.array_equal(source.load("val").images, tiny["val"].images)


def test_a_render_that_fails_leaves_nothing_behind(tmp_path, refuse_to_render):
    source = Scenes("tiny", cache=str(tmp_path))
    refuse_to_render()
    with pytest.raises(AssertionError):
        source.load("val")
    assert list(tmp_path.rglob("*")) == []


def test_a_cache_that_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"is not a folder; give a folder, or null for the one"):
        Scenes("tiny", cache=str(tmp_path / "file")).load("val")


def test_a_cache_of_another_edition_is_made_anew(tmp_path, tiny):
    source = Scenes("tiny", cache=str(tmp_path))
    source.load("val")
    note = source.folder / "val.json"
    note.write_text(note.read_text().replace('"edition": 1', '"edition": 2'))
    assert source.load("val").fingerprint() == tiny["val"].fingerprint()
    assert '"edition": 1' in note.read_text()


def test_the_cache_follows_xdg(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert Scenes("tiny").folder.parent == tmp_path / "vsehub"
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert Scenes("tiny").folder.parent == tmp_path / ".cache" / "vsehub"


def test_bad_arguments_are_named(tmp_path):
    with pytest.raises(InputError, match=r"size is 'huge'; choose one of 'tiny', 'default', 'large'"):
        Scenes("huge")
    with pytest.raises(InputError, match=r"split is 'dev'; choose one of 'train', 'val', 'test'"):
        Scenes("tiny", cache=str(tmp_path)).load("dev")
    for seed in (-1, 0.5, "0"):
        with pytest.raises(InputError, match="seed is"):
            Scenes("tiny", seed=seed)
    blocked = tmp_path / "a file"
    blocked.write_text("")
    with pytest.raises(InputError, match="is not a folder"):
        Scenes("tiny", cache=str(blocked)).load("val")


def test_captions_overlap_between_pictures_but_most_are_distinct(tiny):
    data = tiny["train"]
    pictures = defaultdict(set)
    for caption, image in zip(data.captions, data.image_index, strict=True):
        pictures[caption].add(int(image))
    assert sum(len(images) > 1 for images in pictures.values()) >= 10
    assert len(pictures) > 0.8 * len(data.captions)


def test_captions_read_as_sentences_of_several_people(tiny):
    for data in tiny.values():
        assert all(re.fullmatch(r"[A-Za-z][A-Za-z,: ]*[a-z]\.?", caption) for caption in data.captions)
        assert not any(re.search(r"  |\ba [aeio]|\ban [^aeiou]", caption) for caption in data.captions)
    ends = {caption.endswith(".") for caption in tiny["train"].captions}
    starts = {caption[0].isupper() for caption in tiny["train"].captions}
    lengths = [len(caption) for caption in words(tiny["train"].captions)]
    assert ends == starts == {True, False}
    assert min(lengths) <= 2
    assert max(lengths) >= 20


def test_the_test_split_says_little_that_training_did_not(tiny):
    known = {word for caption in words(tiny["train"].captions) for word in caption}
    said = [word for caption in words(tiny["test"].captions) for word in caption]
    assert 120 <= len(known) <= 250
    assert sum(word in known for word in said) > 0.97 * len(said)


def test_every_value_has_its_words():
    values = {*OUTLINES, *COLOURS, *RADII, *TEXTURES}
    assert values == set(WORDS)
    assert set(BACKGROUNDS) == set(GROUNDS)
    assert all(len(row) == 3 for row in PLACES)


def test_things_stay_inside_and_apart():
    rng = np.random.default_rng(3)
    for _ in range(300):
        things = scenes.compose(rng).things
        for number, thing in enumerate(things):
            radius = RADII[thing.size]
            assert all(radius <= centre <= 64 - radius for centre in (thing.x, thing.y))
            for other in things[:number]:
                apart = np.hypot(thing.x - other.x, thing.y - other.y)
                assert apart > 0.9 * (radius + RADII[other.size])


def test_pictures_show_what_the_scene_says():
    def average(colour, background):
        thing = Thing("circle", colour, "plain", "large", 1, 1, 32.0, 32.0)
        image = render(Scene(background, (thing,)), np.random.default_rng(0)).astype(float)
        return image[:, 28:36, 28:36].mean((1, 2)), image[:, :6].mean((1, 2))

    for colour, wanted in COLOURS.items():
        centre, _ = average(colour, "grass")
        nearest = min(COLOURS, key=lambda name: np.abs(np.array(COLOURS[name]) - centre).sum())
        assert nearest == colour, wanted
    edges = np.array([average("red", background)[1] for background in BACKGROUNDS])
    apart = np.abs(edges[:, None] - edges[None]).sum(-1)[~np.eye(len(edges), dtype=bool)]
    assert apart.min() > 10


def test_pixels_vary(tiny):
    images = np.asarray(tiny["train"].images, dtype=float)
    assert images.std((1, 2, 3)).min() > 5
    assert images.std(0).mean() > 20
