"""Which pairs are batched together, and what a batch leaves out: against loops."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data import CaptionedImages, pairs_by_caption
from vsehub.data.text.tokens import VectorTable
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.models.encode import text_table
from vsehub.training.batches import (
    Draw,
    EpochSampler,
    PairDataset,
    ResidentBatches,
    fits,
    without_words,
)

IMAGES = np.array([0, 0, 0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3, 3])


def epoch(sampler, number=0):
    sampler.set_epoch(number)
    return [draw.rows for draw in sampler]


def test_without_grouping_the_order_is_the_permutation_of_seed_and_epoch():
    for number in (0, 3):
        rows = np.concatenate(epoch(EpochSampler(IMAGES, 4, seed=7), number))
        assert rows.tolist() == np.random.default_rng([7, number]).permutation(len(IMAGES)).tolist()


def test_captions_of_an_image_follow_each_other_in_groups():
    """As few groups of an image as there can be; two of them may happen to stand next to each other."""
    for together in (2, 3, 5, 100):
        sampler = EpochSampler(IMAGES, len(IMAGES), seed=0, per_image=together)
        (rows,) = epoch(sampler)
        assert sorted(rows) == list(range(len(IMAGES)))
        groups = Counter()
        for image, run in itertools.groupby(IMAGES[rows].tolist()):
            groups[image] += -(-len(list(run)) // together)
        for image, count in Counter(IMAGES.tolist()).items():
            assert groups[image] <= -(-count // together)
    assert not np.array_equal(epoch(sampler, 0)[0], epoch(sampler, 1)[0])
    assert np.array_equal(epoch(sampler, 1)[0], epoch(EpochSampler(IMAGES, len(IMAGES), 0, 100), 1)[0])
    same = EpochSampler(IMAGES, 4, seed=0, same_batches=True)
    assert np.array_equal(np.concatenate(epoch(same, 0)), np.concatenate(epoch(same, 3)))


def test_a_remainder_of_one_pair_is_left_out():
    assert [len(rows) for rows in epoch(EpochSampler(IMAGES[:9], 4, 0, 2))] == [4, 4]
    assert [len(rows) for rows in epoch(EpochSampler(IMAGES[:10], 4, 0, 2))] == [4, 4, 2]


def test_words_are_dropped_and_the_ends_stay():
    texts = torch.tensor([[1, 10, 11, 12, 13, 2], [1, 20, 2, 0, 0, 0], [1, 2, 0, 0, 0, 0], [1, 30, 31, 32, 2, 0]])
    lengths = torch.tensor([6, 3, 2, 5])
    counts = Counter()
    for seed in range(200):
        left, sizes = without_words(texts, lengths, 0.3, np.random.default_rng(seed))
        assert left.shape[1] == int(sizes.max())
        for row, size, before, length in zip(
            left.tolist(), sizes.tolist(), texts.tolist(), lengths.tolist(), strict=True
        ):
            assert row[0] == 1
            assert row[size - 1] == 2
            assert not any(row[size:])
            inner = row[1 : size - 1]
            rest = iter(before[1 : length - 1])
            assert all(word in rest for word in inner)  # in their order
            counts.update(inner)
    for word in (10, 11, 12, 13, 20, 30, 31, 32):
        assert 0.55 < counts[word] / 200 < 0.85  # 0.7


class Listed(list):
    """Rows that are no array."""

    shape = (3, 4)


def split(images):
    captions = ["a red cat sleeps on the mat", "two dogs run", "a boat", "birds over the sea at night"]
    return CaptionedImages(images, captions, pairs_by_caption(np.array([0, 0, 1, 2])))


def test_a_batch_drops_the_same_in_a_resumed_run_and_other_things_in_another_epoch():
    regions = np.random.default_rng(0).random((3, 6, 4), dtype=np.float32) + 0.1
    data = split(regions)
    table = text_table(data.captions, Vocabulary.build(data.captions, 1), None)
    rows = np.arange(4)

    def batch(epoch, **settings):
        return PairDataset(data, table, 5, **settings)[Draw(epoch, rows)]

    whole, thin = batch(0), batch(0, drop_words=0.5)
    assert torch.equal(whole.images, torch.from_numpy(regions[[0, 0, 1, 2]]))
    assert int(thin.lengths.sum()) < int(whole.lengths.sum())
    again, later = batch(0, drop_words=0.5), batch(1, drop_words=0.5)
    for name in ("images", "texts", "lengths", "image_ids", "caption_ids"):
        assert torch.equal(getattr(again, name), getattr(thin, name)), name
    assert not torch.equal(later.texts, thin.texts)


def test_what_has_no_words_drops_none():
    data, table = split(np.ones((3, 4), np.float32)), VectorTable(np.ones((4, 2), np.float32))
    with pytest.raises(InputError, match=r"augmentation\.drop_words is"):
        PairDataset(data, table, 0, drop_words=0.2)


@pytest.mark.parametrize(
    ("process", "processes", "texts", "together"),
    [(0, 1, "words", 1), (0, 1, "words", 2), (1, 3, "words", 2), (0, 1, "vectors", 1), (1, 2, "shared", 1)],
)
def test_batches_of_a_device_are_those_of_the_loader(process, processes, texts, together):
    random, count = np.random.default_rng(0), 40
    images = random.random((30, 6)).astype(np.float16)[::2]  # a view, as of repeated rows
    images.flags.writeable = False
    captions = [" ".join(random.choice(["red", "cat", "sky", "sea"], 1 + row % 7)) for row in range(count)]
    pairs = pairs_by_caption(random.integers(15, size=count))
    if texts != "words":
        captions = random.random((count, 5)).astype(np.float32)
    if texts == "shared":
        pairs = np.unique(np.concatenate([pairs, pairs_by_caption(random.integers(15, size=count))]), axis=0)
    data = CaptionedImages(images, captions, pairs)
    table = text_table(captions, Vocabulary.build(captions, 1) if texts == "words" else None, None)
    dataset = PairDataset(data, table, 5, process=process, processes=processes)
    sampler = EpochSampler(data.pairs[:, 0], 7, 5, together, min_pairs=max(2, processes))
    batches = ResidentBatches(dataset, sampler, torch.device("cpu"))
    for number in (0, 1):
        sampler.set_epoch(number)
        expected = [dataset[draw] for draw in sampler]
        assert len(batches) == len(expected)
        for batch, loaded in zip(batches, expected, strict=True):
            assert (loaded.positives is None) == (texts != "shared")
            for value, other in zip(batch, loaded, strict=True):
                assert value is other is None or (value.dtype == other.dtype and torch.equal(value, other))


def test_a_device_gathers_arrays_that_fit_and_waits_for_no_number(monkeypatch):
    data = split(np.ones((3, 4), np.float32))
    table = text_table(data.captions, Vocabulary.build(data.captions, 1), None)
    dataset, sampler = PairDataset(data, table), EpochSampler(data.pairs[:, 0], 2, 0)
    assert all(batch.images.is_meta for batch in ResidentBatches(dataset, sampler, torch.device("meta")))
    needed = 2 * (data.images.nbytes + 4 * 9 * 8)  # four captions, the longest of nine words
    for free, outcome in ((needed, True), (needed - 1, False)):
        monkeypatch.setattr("torch.cuda.mem_get_info", lambda device, free=free: (free, 0))
        assert fits(dataset, torch.device("cuda")) == outcome
    assert fits(dataset, torch.device("cpu"))
    assert not fits(PairDataset(data, table, 0, drop_words=0.2), torch.device("cpu"))
    assert not fits(PairDataset(replace(data, images=Listed(data.images)), table), torch.device("cpu"))
