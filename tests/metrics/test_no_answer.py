"""Metrics of input that has no answer."""

import math

import pytest
import torch
from looped import looped

from vsehub.checks import InputError
from vsehub.metrics import (
    atkinson,
    count_occurrences,
    gini,
    hubness,
    k_occurrences,
    rank_blocks,
    recall_metrics,
    skewness,
)
from vsehub.neighbors import top_k_of_blocks
from vsehub.positives import Positives

NAN = torch.tensor([[0.1, math.nan], [0.2, 0.3]])
EYE, ONE, TWO = torch.eye(3).bool(), torch.tensor([0, 2]), torch.tensor([0, 3])
MASK = Positives.from_mask(torch.tensor([[True, True, True, False], [False, False, False, True]]))
LISTS = torch.tensor([[0, 1, 2], [3, 2, 1]])


def ranked(scores, first=0):
    return rank_blocks([(first, scores)], Positives.from_mask(EYE))


def pairs(query=ONE, item=TWO, queries=3, complete=True):
    return Positives.from_pairs(query, item, queries, 4, complete)


@looped(
    ("call", "named"),
    [
        (lambda: hubness(NAN, (1,)), "NaN"),
        (lambda: hubness(torch.rand(3)), "scores"),
        (lambda: hubness(torch.rand(3, 3), (0,)), "k is 0"),
        (lambda: hubness(torch.rand(3, 4), positives=torch.ones(4, 3).bool()), "positives"),
        (lambda: k_occurrences(NAN, (1,)), "NaN"),
        (lambda: k_occurrences(torch.rand(0, 4)), "at least one query and one item"),
        (lambda: recall_metrics(NAN, torch.eye(2).bool()), "NaN"),
        (lambda: recall_metrics(torch.rand(0, 2), torch.zeros(0, 2).bool()), "at least one query and one item"),
        (lambda: recall_metrics(torch.eye(2).long(), torch.eye(2).bool()), "scores holds torch.int64"),
        (lambda: ranked(torch.rand(2)), "scores"),
        (lambda: ranked(torch.tensor([[math.nan] * 3] * 3)), "NaN"),
        (lambda: ranked(torch.rand(3, 4)), "4 columns"),
        (lambda: ranked(torch.rand(2, 3), first=1), "query 0 first"),
        (lambda: ranked(torch.rand(4, 3)), "queries 0 to 4"),
        (lambda: ranked(torch.rand(2, 3)), "end at query 2"),
        (lambda: count_occurrences(LISTS, 0), "items is 0"),
        (lambda: count_occurrences(LISTS, 3, (1.5,)), "k is 1.5"),
        (lambda: count_occurrences(LISTS[:, :2], 4, (1, 3)), "nearest lists 2"),
        (lambda: count_occurrences(LISTS - 1, 4, (1, 3)), "positions -1 to 2"),
        (lambda: count_occurrences(LISTS[0], 4, (1, 3)), "nearest"),
        (lambda: Positives.from_mask(EYE & torch.tensor([True, False, True])), r"1 of 3 queries .* query \[1\]"),
        (lambda: Positives.from_mask(EYE.float()), "positives is torch.float32"),
        (lambda: pairs(), r"1 of 3 queries .*query \[1\]"),
        (lambda: pairs(queries=2), "query holds positions 0 to 2"),
        (lambda: pairs(item=TWO - 3), "item holds positions -3 to 0"),
        (lambda: pairs(item=TWO[:1]), "query and item"),
        (lambda: pairs(ONE[:0], TWO[:0], complete=False), "query and item"),
        (lambda: pairs(ONE.float()), "query is torch.float32"),
        (lambda: Positives(ONE.flip(0), TWO, 3, 4).hits(TWO[None]), "out of order"),
        (lambda: Positives(ONE, TWO, 3, 4).hits(TWO[:, None], 2), "queries 2 to 3"),
        (lambda: Positives(ONE, TWO, 3, 4).hits(TWO), "positions"),
        (lambda: top_k_of_blocks(iter(()), 3), "blocks is empty"),
    ],
)
def test_no_answer(call, named):
    with pytest.raises(InputError, match=named):
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
