"""Pairs any number each way, in the batch's mask, the bank and the evaluation, against loops over single pairs."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.data import CaptionedImages
from vsehub.data.text.tokens import VectorTable
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.models import EncodedSplit
from vsehub.neighbors.bank import MemoryBank, most_related
from vsehub.neighbors.faiss import loaded_faiss
from vsehub.positives import Positives
from vsehub.similarities import Cosine
from vsehub.training.batches import Draw, PairDataset

FAISS = pytest.param("faiss", marks=pytest.mark.skipif(loaded_faiss()[0] is None, reason="FAISS is not installed"))
IMAGES, TEXTS = 7, 11


def many_to_many(seed, images=IMAGES, texts=TEXTS, more=12):
    """Distinct pairs in no order: each image and each text has at least one, some have several."""
    generator = np.random.default_rng(seed)
    everyone = [(n % images, n % texts) for n in range(max(images, texts))]
    others = zip(generator.integers(0, images, more), generator.integers(0, texts, more), strict=True)
    return generator.permutation(sorted({*everyone, *((int(i), int(t)) for i, t in others)}))


def positives_of(pairs, images=IMAGES, texts=TEXTS):
    return Positives.from_pairs(*torch.from_numpy(pairs).T, images, texts, complete=False)


def unit(generator, rows, coarse=False):
    vectors = torch.randn(rows, 4, generator=generator)
    return torch.nn.functional.normalize(vectors.sign() if coarse else vectors, dim=1)


@pytest.mark.parametrize("seed", range(4))
def test_related_equals_looking_each_pair_up(seed):
    pairs = many_to_many(seed)
    known = {tuple(pair) for pair in pairs.tolist()}
    images, texts = torch.arange(IMAGES), torch.arange(TEXTS)
    positives = positives_of(np.concatenate([pairs, pairs[:3]]))
    dense = torch.tensor([[(i, t) in known for t in range(TEXTS)] for i in range(IMAGES)])
    assert torch.equal(positives.related(images[:, None], texts[None, :]), dense)
    assert torch.equal(positives.related(images[:, None].flip(0), texts[None, :]), dense.flip(0))
    lists = torch.randint(0, TEXTS, (IMAGES, 5), generator=torch.Generator().manual_seed(seed))
    assert torch.equal(positives.related(images[:, None], lists), dense.gather(1, lists))


@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), entries=st.integers(1, 30))
def test_most_related_equals_counting(seed, entries):
    pairs = many_to_many(seed)
    known = {tuple(pair) for pair in pairs.tolist()}
    entry = pairs[np.random.default_rng(seed).integers(0, len(pairs), entries)]
    of_image = [sum((image, text) in known for text in entry[:, 1].tolist()) for image in range(IMAGES)]
    of_text = [sum((image, text) in known for image in entry[:, 0].tolist()) for text in range(TEXTS)]
    expected = max(of_image + of_text)
    assert most_related(positives_of(pairs), *torch.from_numpy(entry).T) == expected
    twice = np.concatenate([pairs, pairs[::2]])
    assert most_related(positives_of(twice), *torch.from_numpy(entry).T) == expected


@pytest.mark.parametrize("backend", [FAISS, "exact"])
@pytest.mark.parametrize("exclude", ["image", "partner", "batch_captions"])
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**16), n=st.integers(1, 6), coarse=st.booleans())
def test_the_bank_equals_loops(backend, exclude, seed, n, coarse):
    """Each query's entries one by one: those that belong to it, in whatever pair, are no neighbours."""
    images, texts, k = 20, 26, 3
    pairs = many_to_many(seed, images, texts, more=14)
    known = {tuple(pair) for pair in pairs.tolist()}
    generator = torch.Generator().manual_seed(seed)
    image_vectors, text_vectors = unit(generator, images, coarse), unit(generator, texts, coarse)
    entries = torch.from_numpy(pairs[np.random.default_rng(seed).permutation(len(pairs))[:24]])
    drawn_pairs = torch.from_numpy(pairs[np.random.default_rng([seed, 1]).permutation(len(pairs))[:n]])
    bank = MemoryBank(k, backend, exclude)
    sides = image_vectors[entries[:, 0]], text_vectors[entries[:, 1]]
    bank.fill(*sides, *entries.T, positives=positives_of(pairs, images, texts))
    stats = bank.query(image_vectors[drawn_pairs[:, 0]], text_vectors[drawn_pairs[:, 1]], *drawn_pairs.T)
    batch = set(drawn_pairs[:, 1].tolist())
    for row, (image, text) in enumerate(drawn_pairs.tolist()):
        to_texts, to_images = [], []
        for entry_image, entry_text in entries.tolist():
            no_text, no_image = {
                "image": ((image, entry_text) in known, (entry_image, text) in known),
                "partner": (entry_text == text, entry_image == image),
                "batch_captions": (entry_text in batch, entry_text in batch),
            }[exclude]
            if not no_text:
                to_texts.append(float(image_vectors[image] @ text_vectors[entry_text]))
            if not no_image:
                to_images.append(float(image_vectors[entry_image] @ text_vectors[text]))
        for similarities, expected in ((stats.image_to_text, to_texts), (stats.text_to_image, to_images)):
            np.testing.assert_allclose(similarities[row], sorted(expected, reverse=True)[:k], rtol=1e-5, atol=1e-6)


def test_a_text_of_most_images_leaves_too_few():
    pairs = np.array([[image, 0] for image in range(8)] + [[image, image] for image in range(1, 8)])
    everything = torch.from_numpy(pairs)
    with pytest.raises(InputError, match=r"a bank of 15 pairs, of which up to 15 are excluded for a query, leaves 0"):
        MemoryBank(5, "exact").plan(*everything.T, positives_of(pairs, 8, 8))


@pytest.mark.parametrize("seed", range(3))
def test_a_batch_marks_all_that_belong_together(seed):
    pairs = many_to_many(seed)
    known = {tuple(pair) for pair in pairs.tolist()}
    vectors = [np.random.default_rng(seed).normal(size=(count, 3)).astype(np.float32) for count in (IMAGES, TEXTS)]
    split = CaptionedImages(*vectors, pairs)
    rows = np.random.default_rng(seed).permutation(len(pairs))[:9]
    batch = PairDataset(split, VectorTable(split.captions))[Draw(0, rows)]
    assert len(PairDataset(split, VectorTable(split.captions))) == len(pairs)
    for n, (image, text) in enumerate(pairs[rows].tolist()):
        np.testing.assert_array_equal(batch.images[n], vectors[0][image])
        np.testing.assert_array_equal(batch.texts[n], vectors[1][text])
        for m, (_, other) in enumerate(pairs[rows].tolist()):
            assert bool(batch.positives[n, m]) == ((image, other) in known)
    assert batch.positives.diagonal().all()


def ranks_by_loops(scores, known):
    """The rank of each query's best positive: one more than the items that belong to others and score as much."""
    rows = []
    for query, row in enumerate(scores.tolist()):
        best = max(score for item, score in enumerate(row) if (query, item) in known)
        rows.append(1 + sum(score >= best and (query, item) not in known for item, score in enumerate(row)))
    return np.array(rows)


@looped("criterion", [NearestNeighbor(), CSLS(3)])
@looped("protocol", [Protocol("single"), Protocol("folds", 3, 2)])
@looped("seed", range(3))
def test_evaluation_takes_the_best_positive(seed, protocol, criterion):
    """Texts of several images count in each fold with the images there; scores are coarse, so that some tie."""
    generator = torch.Generator().manual_seed(seed)
    pairs = many_to_many(seed)
    images, texts = unit(generator, IMAGES, coarse=True).double(), unit(generator, TEXTS, coarse=True).double()
    metrics = evaluate(EncodedSplit(images, texts, torch.from_numpy(pairs)), Cosine(), criterion, protocol).metrics
    sums = {name: 0.0 for name in ("i2t/r1", "t2i/r1", "i2t/meanr", "t2i/meanr")}
    folds = protocol.slices(IMAGES)
    for fold in folds:
        inside = [(i - fold.start, t) for i, t in pairs.tolist() if fold.start <= i < fold.stop]
        columns = sorted({text for _, text in inside})
        known = {(image, columns.index(text)) for image, text in inside}
        scores = Cosine()(images[fold], texts[columns])
        for direction, matrix, pairs_there in (("i2t", scores, known), ("t2i", scores.T, {(t, i) for i, t in known})):
            ranks = ranks_by_loops(criterion.rescore(matrix), pairs_there)
            sums[f"{direction}/r1"] += 100 * (ranks == 1).mean() / len(folds)
            sums[f"{direction}/meanr"] += ranks.mean() / len(folds)
    assert {name: metrics[name] for name in sums} == pytest.approx(sums)
