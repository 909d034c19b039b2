"""The embedded scenes: the same for everyone, cached, with captions that make hubs."""

import zlib

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data.scenes import source as scenes
from vsehub.data.scenes.images import COLOURS, Scene, Thing, render
from vsehub.data.scenes.source import SIZES, Scenes

# Checksums of the captions of train, val and test: no version may change them.
CAPTIONS = [641064237, 3803831879, 1107245201]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    source = Scenes("tiny", cache=str(tmp_path_factory.mktemp("scenes")))
    return {split: source.load(split) for split in ("train", "val", "test")}


def test_a_split_has_five_captions_an_image_in_image_order(tiny):
    pictures = [image.tobytes() for data in tiny.values() for image in data.images]
    assert len(set(pictures)) == len(pictures), "a picture is in two splits"
    for (split, data), count in zip(tiny.items(), SIZES["tiny"], strict=True):
        assert (data.images.shape, len(data.captions)) == ((count, 3, 64, 64), 5 * count)
        assert data.image_index.tolist() == [image for image in range(count) for _ in range(5)]
        assert data.names[12] == f"scene-{split}-000012"


def test_the_seed_alone_decides(tiny, tmp_path):
    """No split needs another one."""
    again, other = (Scenes("tiny", seed=seed, cache=str(tmp_path)) for seed in (0, 1))
    assert again.load("val").fingerprint() == tiny["val"].fingerprint() != other.load("val").fingerprint()
    assert sorted(path.name for path in again.folder.iterdir()) == ["val.json", "val.npy"]
    assert [zlib.crc32("\n".join(tiny[split].captions).encode()) for split in tiny] == CAPTIONS


@pytest.mark.parametrize("name", ["val.npy", "val.json"])
def test_a_damaged_cache_is_named(tmp_path, name):
    source = Scenes("tiny", cache=str(tmp_path))
    source.load("val")
    path = source.folder / name
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=name):
        source.load("val")


def test_a_render_that_fails_leaves_no_file_and_a_cached_split_is_not_rendered(tmp_path, monkeypatch):
    source = Scenes("tiny", cache=str(tmp_path))
    found = source.load("val").fingerprint()
    monkeypatch.setattr(scenes, "render", None)
    assert source.load("val").fingerprint() == found
    with pytest.raises(TypeError):
        source.load("test")
    assert sorted(path.name for path in source.folder.iterdir()) == ["val.json", "val.npy"]


@pytest.mark.parametrize(
    ("settings", "named"), [({"size": "huge"}, "size"), ({"seed": -1}, "seed"), ({"cache": __file__}, "cache")]
)
def test_bad_arguments_are_named(settings, named):
    with pytest.raises(InputError, match=named):
        Scenes(**{"size": "tiny"} | settings)


def test_pictures_show_what_the_scene_says():
    for colour, wanted in COLOURS.items():
        thing = Thing("circle", colour, "plain", "large", 1, 1, 32.0, 32.0)
        centre = render(Scene("grass", (thing,)), np.random.default_rng(0))[:, 28:36, 28:36].mean((1, 2))
        assert min(COLOURS, key=lambda name: np.abs(np.array(COLOURS[name]) - centre).sum()) == colour, wanted
