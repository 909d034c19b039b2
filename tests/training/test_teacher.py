"""The term of distillation against loops over pairs, and what it is the same for."""

import math

import pytest
import torch

from vsehub.data import pairs_by_caption
from vsehub.evaluation.ensemble import MeanSimilarity, MemberEncodings
from vsehub.models.encode import EncodedSplit
from vsehub.similarities import Cosine
from vsehub.training.teacher import Teacher
from vsehub.types import Batch

IMAGES, TEXTS, DIM = 7, 11, 5


@pytest.fixture
def random():
    return torch.Generator().manual_seed(0)


@pytest.fixture
def split(random):
    images, texts = torch.randn(IMAGES, 9, generator=random), torch.randn(TEXTS, 9, generator=random)
    return EncodedSplit(images, texts, torch.from_numpy(pairs_by_caption(torch.arange(TEXTS) % IMAGES)))


def batch(images, texts):
    nothing = torch.zeros(len(images))
    return Batch(nothing, nothing, nothing, torch.tensor(images), torch.tensor(texts))


def softmax(row, temperature):
    weights = [math.exp(value / temperature) for value in row]
    return [weight / sum(weights) for weight in weights]


def divergence(predicted, theirs, temperature):
    """The mean over rows of τ · KL, by loops."""
    total = 0.0
    for ours, wanted in zip(predicted, theirs, strict=True):
        pairs = zip(softmax(wanted, temperature), softmax(ours, temperature), strict=True)
        total += temperature * sum(p * (math.log(p) - math.log(q)) for p, q in pairs)
    return total / len(predicted)


def cosines(images, texts):
    return [[float(torch.cosine_similarity(image, other, dim=0)) for other in texts] for image in images]


def turned(rows):
    return [list(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("temperature", [0.02, 0.3])
def test_the_term_is_that_of_loops(split, random, temperature):
    rows, columns = [3, 0, 3, 6], [10, 7, 3, 6]  # one image twice
    images, texts = torch.randn(4, DIM, generator=random), torch.randn(4, DIM, generator=random)
    teacher = Teacher(split, Cosine(), temperature)
    scores_here, theirs = cosines(images, texts), cosines(split.images[rows], split.texts[columns])
    alone = (
        divergence(scores_here, theirs, temperature) + divergence(turned(scores_here), turned(theirs), temperature)
    ) / 2
    scores = Cosine()(images, texts)
    term = teacher.term(scores, batch(rows, columns))
    assert term.item() == pytest.approx(alone, rel=1e-4)


def test_several_teachers_teach_the_mean_of_their_scores(split, random):
    other = EncodedSplit(torch.randn(IMAGES, 3, generator=random), torch.randn(TEXTS, 3, generator=random), split.pairs)
    both = EncodedSplit(
        MemberEncodings((split.images, other.images)), MemberEncodings((split.texts, other.texts)), split.pairs
    )
    teacher = Teacher(both, MeanSimilarity([Cosine(), Cosine()]), 0.1)
    rows, columns = [0, 5, 2], [7, 5, 9]
    scores = torch.stack(
        [Cosine()(encodings.images[rows], encodings.texts[columns]) for encodings in (split, other)]
    ).mean(0)
    scores.requires_grad_()
    term = teacher.term(scores, batch(rows, columns))
    assert term.item() == pytest.approx(0, abs=1e-6), "who scores as the teachers do has nothing to learn"
    (gradient,) = torch.autograd.grad(term, scores)
    assert gradient.abs().max() < 1e-6
    term = teacher.term(scores.detach() + 3, batch(rows, columns))
    assert term.item() == pytest.approx(0, abs=1e-5), "nor does a constant on all scores matter"
