"""A broken-off extraction continues, and its files are those that data=precomp and the readers of vectors read."""

import csv

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data import CaptionedImages, Precomp, open_vectors, pairs_by_caption
from vsehub.extraction.layouts import (
    Work,
    compute,
    equal_caption_counts,
    feature_files,
    keep_or_discard_chunks,
    vector_files,
    write_features,
    write_vectors,
)
from vsehub.io.arrays import write_array

SETTINGS = {"model": "x", "regions": None, "data": {"train": "abc"}}


def split(counts, seed=0, names=True):
    """Images of 3 x 2 x 2 pixels with `counts` captions, which stand in any order; each of them has a line break."""
    rng = np.random.default_rng(seed)
    index = rng.permutation(np.repeat(np.arange(len(counts)), counts))
    numbers, captions = [0] * len(counts), []
    for image in index:
        captions.append(f"caption {numbers[image]} of\n image {image}")
        numbers[image] += 1
    images = rng.integers(1, 256, (len(counts), 3, 2, 2), dtype=np.uint8)
    return CaptionedImages(
        images, captions, pairs_by_caption(index), [f"{n}.jpg" for n in range(len(counts))] if names else None
    )


def pixels(images):
    """Features (n, 4, 3) that tell any two pictures apart."""
    return torch.from_numpy(images).float().flatten(2).transpose(1, 2)


def chunks_of(folder, loaded, function=pixels, size=4, dtype="float32", name="train"):
    return compute(folder, name, Work(loaded.images, function, loaded.name_of), size, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_broken_off_computation_continues(tmp_path, dtype):
    loaded, computed = split([1] * 11), []

    def counted(images):
        if len(computed) == 2:
            computed.append(0)
            raise KeyboardInterrupt
        computed.append(len(images))
        return pixels(images)

    keep_or_discard_chunks(tmp_path, SETTINGS, overwrite=False)
    with pytest.raises(KeyboardInterrupt):
        chunks_of(tmp_path, loaded, counted, dtype=dtype)
    keep_or_discard_chunks(tmp_path, dict(reversed(SETTINGS.items())), overwrite=False)
    write_array(tmp_path / "all.npy", 11, map(np.load, chunks_of(tmp_path, loaded, counted, dtype=dtype)))
    assert sum(computed) == 11
    array, expected = np.load(tmp_path / "all.npy"), pixels(loaded.images).to(getattr(torch, dtype)).numpy()
    assert array.dtype == expected.dtype
    np.testing.assert_array_equal(array, expected)


def test_chunks_of_other_settings(tmp_path):
    keep_or_discard_chunks(tmp_path, SETTINGS, overwrite=False)
    (chunk,) = chunks_of(tmp_path, split([1]))
    other = SETTINGS | {"regions": 7, "data": {"train": "abd"}}
    with pytest.raises(InputError, match="another regions, data"):
        keep_or_discard_chunks(tmp_path, other, overwrite=False)
    assert chunk.exists()
    keep_or_discard_chunks(tmp_path, other, overwrite=True)
    assert not chunk.exists()


def test_nothing_is_rounded_to_tf32(tmp_path):
    cudnn, noted = torch.backends.cudnn, []

    def noting(images):
        noted.append((cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision))
        return pixels(images)

    before = cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision
    chunks_of(tmp_path, split([2] * 4), noting)
    assert set(noted) == {("ieee", "ieee")}
    assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == before != ("ieee", "ieee")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 0.0, 70_000.0])
def test_unusable_features_name_their_images(tmp_path, value):
    loaded = split([1] * 9)

    def spoiled(images):
        bad = [any(np.array_equal(image, loaded.images[row]) for row in (5, 7)) for image in images]
        return pixels(images).masked_fill(torch.tensor(bad)[:, None, None], value)

    with pytest.raises(InputError, match=r"5\.jpg, 7\.jpg"):
        chunks_of(tmp_path, loaded, spoiled, dtype="float16")


def test_precomp_reads_features(tmp_path):
    splits = {name: split([3, 5, 4, 7], seed, names=seed < 2) for seed, name in enumerate(("train", "val", "test"))}
    chunks = {name: chunks_of(tmp_path / "chunks", loaded, name=name, size=3) for name, loaded in splits.items()}
    write_features(tmp_path, equal_caption_counts(splits), chunks)
    for name, loaded in splits.items():
        features = Precomp(tmp_path).load(name)
        np.testing.assert_array_equal(features.images, pixels(loaded.images))
        assert features.names == loaded.names
        assert features.pairs[:, 0].tolist() == np.repeat(np.arange(4), 3).tolist()
        assert features.captions == [f"caption {n} of image {image}" for image in range(4) for n in range(3)]
    assert all((tmp_path / name).is_file() for name in feature_files(["train", "val"]))


@pytest.mark.parametrize(("counts", "each"), [([6, 9, 7], 5), ([3, 9], 3), ([2, 0, 1], None)])
def test_as_many_captions_of_every_image(counts, each):
    if each is None:
        with pytest.raises(InputError, match="captions"):
            equal_caption_counts({"train": split(counts)})
    else:
        assert len(equal_caption_counts({"train": split(counts)})["train"].captions) == each * len(counts)


def test_a_caption_of_several_images_is_repeated():
    shared = CaptionedImages(np.zeros((2, 3)), ["a", "b"], np.array([[1, 0], [0, 1], [1, 1]]))
    reduced = equal_caption_counts({"train": shared})["train"]
    assert (reduced.captions, reduced.pairs.tolist()) == (["b", "a"], [[0, 0], [1, 1]])


@pytest.mark.parametrize("names", [True, False])
def test_vectors_and_pairs_have_the_same_ids(tmp_path, names):
    """Pictures of two splits have equal names; one caption each, so that names of pictures could be ids of captions."""
    splits = {name: split([1, 1, 1], seed, names) for seed, name in enumerate(("val", "test"))}
    chunks = {}
    for name, loaded in splits.items():
        texts = Work(loaded.captions, lambda rows: torch.tensor([[1.0, int(row[-1])] for row in rows]), loaded.text_of)
        chunks[f"{name}-texts"] = compute(tmp_path / "chunks", f"{name}-texts", texts, 2, "float32")
        chunks[f"{name}-images"] = chunks_of(
            tmp_path / "chunks", loaded, lambda images: pixels(images).flatten(1), name=f"{name}-images"
        )
    write_vectors(tmp_path, splits, chunks)
    assert all((tmp_path / name).is_file() for name in vector_files(splits))
    for name, loaded in splits.items():
        texts = open_vectors(f"{tmp_path}/{name}/texts::text_emb")
        images, every = (open_vectors(f"{tmp_path}/{part}images::img_emb") for part in (f"{name}/", ""))
        with (tmp_path / f"{name}.csv").open(newline="") as file:
            pairs = {(row["query"], row["item"]) for row in csv.DictReader(file)}
        assert pairs == {(texts.ids[n], images.ids[image]) for image, n in loaded.pairs.tolist()}
        np.testing.assert_array_equal(images.rows(0, 3).numpy(), pixels(loaded.images).flatten(1).numpy())
        assert len(every.ids) == len(set(every.ids)) == 6
        assert set(images.ids) < set(every.ids)
