import math

import pytest
import torch
import torch.nn.functional as F
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.evaluation import Protocol
from vsehub.evaluation import scores as scores_module
from vsehub.evaluation.ensemble import MeanSimilarity, joined_split
from vsehub.evaluation.evaluate import evaluate
from vsehub.models import EncodedSplit
from vsehub.sets import Sets
from vsehub.similarities import Cosine, CrossAttention, Order
from vsehub.types import Similarity

IMAGES, TEXTS = 12, 60
OWNER = torch.arange(TEXTS) // 5
PAIRS = torch.stack([OWNER, torch.arange(TEXTS)], dim=1)


def vectors(seed, dim=6):
    generator = torch.Generator().manual_seed(seed)
    images = torch.randn(IMAGES, dim, generator=generator)
    texts = images[OWNER] + torch.randn(TEXTS, dim, generator=generator)
    return EncodedSplit(images, texts, PAIRS)


def sets(seed):
    generator = torch.Generator().manual_seed(seed)
    lengths = [torch.randint(1, 5, (count,), generator=generator) for count in (IMAGES, TEXTS)]
    return EncodedSplit(
        *(Sets(torch.randn(int(sizes.sum()), 5, generator=generator), sizes) for sizes in lengths), PAIRS
    )


class Given(Similarity):
    """The "similarity" that looks scores up; encodings are their own row numbers."""

    def __init__(self, matrix):
        super().__init__()
        self.matrix = matrix

    def forward(self, images, texts):
        return self.matrix[images[:, 0]][:, texts[:, 0]]


def numbers():
    return EncodedSplit(torch.arange(IMAGES)[:, None], torch.arange(TEXTS)[:, None], PAIRS)


@looped("block", [2**25, 7 * TEXTS])
@looped("criterion", [NearestNeighbor(), CSLS()])
@looped("protocol", [Protocol("single"), Protocol("folds", 4, 3)])
def test_ranks_by_the_mean_of_the_matrices(block, criterion, protocol, monkeypatch):
    """In blocks and in folds as at once; models of unlike sizes D and unlike similarities."""
    monkeypatch.setattr(scores_module, "BLOCK_ELEMENTS", block)
    monkeypatch.setattr(scores_module, "MATRIX_ELEMENTS", block)
    members = [(vectors(0), Cosine()), (vectors(1, dim=9), Order()), (sets(2), CrossAttention())]
    by_hand = torch.stack([similarity(split.images, split.texts) for split, similarity in members]).double().mean(dim=0)
    expected = evaluate(numbers(), Given(by_hand), criterion, protocol)
    joint = joined_split([split for split, _ in members])
    evaluation = evaluate(joint, MeanSimilarity([similarity for _, similarity in members]), criterion, protocol)
    assert evaluation.metrics == pytest.approx(expected.metrics, abs=1e-9)
    assert evaluation.histograms == expected.histograms
    assert evaluation.metrics != evaluate(members[0][0], Cosine(), criterion, protocol).metrics


def test_an_inductive_reference_is_encoded_by_all_members():
    parts, bank = [vectors(4), vectors(5)], [vectors(6), vectors(7)]
    evaluation = evaluate(
        joined_split(parts), MeanSimilarity([Cosine()] * 2), CSLS(), Protocol("single"), joined_split(bank)
    )
    # The mean of two cosines is the inner product of both units side by side, over 2.
    units = [torch.cat([F.normalize(split.images, dim=1) for split in two], dim=1) for two in (parts, bank)]
    words = [torch.cat([F.normalize(split.texts, dim=1) for split in two], dim=1) for two in (parts, bank)]
    split, reference = (EncodedSplit(a.double(), b.double(), PAIRS) for a, b in zip(units, words, strict=True))
    assert evaluation == evaluate(split, Cosine(), CSLS(), Protocol("single"), reference)


def test_weights_are_shares_and_a_model_without_weight_is_not_scored():
    first, other = torch.rand(IMAGES, TEXTS), torch.rand(IMAGES, TEXTS)
    expected, joint = 0.75 * first + 0.25 * other, joined_split([numbers()] * 3)
    mean = MeanSimilarity([lambda images, texts: first, None, Given(other)], [3, 0, 1])
    for _ in range(2):  # the models' own scores are not changed
        torch.testing.assert_close(mean(joint.images, joint.texts), expected)


@pytest.mark.parametrize("weights", [[1], [0, 0], [2, -1], [1, math.inf], [1, math.nan], "test", 3, [1, "2"]])
def test_weights_that_say_nothing_are_refused(weights):
    with pytest.raises(InputError, match="member_weights"):
        MeanSimilarity([Cosine(), Cosine()], weights)
