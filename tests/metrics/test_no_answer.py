"""Metrics of input that has no answer."""

import math

import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.metrics import (
    Occurrences,
    Positives,
    atkinson,
    gini,
    hubness,
    k_occurrences,
    occurrence_metrics,
    rank_blocks,
    recall_metrics,
    skewness,
)

NAN = torch.tensor([[0.1, math.nan], [0.2, 0.3]])
EYE = Positives.from_mask(torch.eye(2).bool())


@looped(
    ("call", "message"),
    [
        (lambda: hubness(NAN, (1,)), "scores hold NaN"),
        (lambda: k_occurrences(NAN, (1,)), "scores hold NaN"),
        (lambda: k_occurrences(torch.rand(4)), r"scores has shape \(4,\); expected a matrix"),
        (lambda: k_occurrences(torch.rand(0, 4)), "expected at least one query and one item"),
        (lambda: recall_metrics(NAN, torch.eye(2).bool()), "scores hold NaN"),
        (lambda: recall_metrics(torch.rand(0, 2), torch.zeros(0, 2).bool()), "at least one query and one item"),
        (lambda: recall_metrics(torch.eye(2).long(), torch.eye(2).bool()), "scores holds torch.int64 numbers"),
        (lambda: rank_blocks([(0, torch.rand(2))], EYE), r"scores has shape \(2,\); expected a matrix"),
        (lambda: Occurrences(3, (1.5,)), "k is 1.5; expected a whole number"),
        (lambda: occurrence_metrics({1: torch.tensor([1.0, math.nan])}), "counts lie between nan and nan"),
    ],
)
def test_no_answer(call, message):
    with pytest.raises(InputError, match=message):
        call()


@looped("figure", [skewness, gini, atkinson])
@looped("counts", [[1.0, math.nan], [1.0, math.inf], [2.0, -1.0], []])
def test_counts_are_counts(figure, counts):
    with pytest.raises(InputError, match="counts "):
        figure(torch.tensor(counts))


def test_infinite_scores_have_an_order():
    scores = torch.tensor([[math.inf, 0.0, -math.inf], [0.0, math.inf, math.inf], [-math.inf] * 3])
    assert k_occurrences(scores, (1,))[1].tolist() == [2, 1, 0]
    assert recall_metrics(scores, torch.eye(3).bool())["i2t/r1"] == pytest.approx(100 / 3)
    assert hubness(scores, ()) == {"hs_sum": 0}
