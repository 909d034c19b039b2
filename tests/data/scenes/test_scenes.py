"""The built-in scenes: the same for everyone, cached, with captions that make hubs."""

import zlib

import pytest

from vsehub.checks import InputError
from vsehub.data.scenes import source as scenes
from vsehub.data.scenes.source import SIZES, Scenes

# Checksums of the captions of train, val and test: no version may change them.
CAPTIONS = [641064237, 3803831879, 1107245201]


@pytest.fixture
def tiny():
    source = Scenes("tiny")
    return {split: source.load(split) for split in ("train", "val", "test")}


def test_a_split_has_five_captions_an_image_in_image_order(tiny):
    pictures = [image.tobytes() for data in tiny.values() for image in data.images]
    assert len(set(pictures)) == len(pictures), "a picture is in two splits"
    for (split, data), count in zip(tiny.items(), SIZES["tiny"], strict=True):
        assert (data.images.shape, len(data.captions)) == ((count, 3, 64, 64), 5 * count)
        assert data.pairs[:, 0].tolist() == [image for image in range(count) for _ in range(5)]
        assert data.names[12] == f"scene-{split}-000012"


def test_the_seed_alone_decides(tiny, tmp_path, monkeypatch):
    """No split needs another one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    again, other = (Scenes("tiny", seed=seed) for seed in (0, 1))
    assert again.load("val").fingerprint() == tiny["val"].fingerprint() != other.load("val").fingerprint()
    assert sorted(path.name for path in again.folder.iterdir()) == ["val.json", "val.npy"]
    assert [zlib.crc32("\n".join(tiny[split].captions).encode()) for split in tiny] == CAPTIONS


def test_a_cached_split_is_not_rendered_and_a_damaged_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    source = Scenes("tiny")
    fingerprint = source.load("val").fingerprint()
    monkeypatch.setattr(scenes, "render", None)
    assert source.load("val").fingerprint() == fingerprint
    with pytest.raises(TypeError):
        source.load("test")
    files = sorted(source.folder.iterdir())
    assert [path.name for path in files] == ["val.json", "val.npy"], "a render that failed has left a file"
    for path in files:
        whole = path.read_bytes()
        path.write_bytes(whole[:40])
        with pytest.raises(InputError, match=path.name):
            source.load("val")
        path.write_bytes(whole)
