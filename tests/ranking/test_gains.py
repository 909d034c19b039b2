"""The interval of a gain: exact, in agreement with its p value, and as wide as queries that share an item make it."""

import numpy as np
import pytest
import torch
from looped import looped
from scipy.stats import binomtest

from vsehub.positives import Positives
from vsehub.ranking.gains import paired_gain, r1_gain


def changed(up, down, queries):
    """Hits before and after of queries of which so many gain and lose."""
    before, after = np.zeros(queries, int), np.zeros(queries, int)
    after[:up] = 1
    before[up : up + down] = 1
    return before, after


@looped("queries", [25, 400])
def test_the_interval_agrees_with_the_exact_test(queries):
    for up in (0, 1, 2, 5, 6, 9, 12):
        for down in (0, 1, 2, 5, 6, 9, 12):
            before, after = changed(up, down, queries)
            gain = paired_gain(before, after, np.arange(queries))
            p = binomtest(up, up + down).pvalue if up + down else 1.0
            assert gain["p"] == pytest.approx(p)
            assert (gain["low"] <= 0 <= gain["high"]) == (p >= 0.05)
            assert gain["r1"] == pytest.approx(100 * (up - down) / queries)
            assert gain["low"] < gain["r1"] < gain["high"]
            if not down:
                most = binomtest(up, queries).proportion_ci(method="exact").high
                assert gain["high"] == pytest.approx(100 * most)
            turned = paired_gain(after, before, np.arange(queries))
            assert (turned["low"], turned["high"]) == pytest.approx((-gain["high"], -gain["low"]))


def test_copies_of_queries_tell_nothing_more():
    """Five captions of an image that always change together are as good as one."""
    before, after = changed(12, 2, 100)
    alone = paired_gain(before, after, np.arange(100))
    five = paired_gain(before.repeat(5), after.repeat(5), np.arange(100).repeat(5))
    assert alone["p"] < 0.05
    assert (five["queries"], five["groups"], five["r1"]) == (500, 100, pytest.approx(alone["r1"]))
    assert five["p"] == pytest.approx(alone["p"], rel=0.2)
    assert five["high"] - five["low"] == pytest.approx(alone["high"] - alone["low"], rel=0.1)
    single = paired_gain(before, after, np.zeros(100, int))
    assert single["p"] == 1
    assert single["low"] < 0 < single["high"]


@looped(("groups", "size", "share"), [(60, 1, 0.05), (60, 1, 0.4), (100, 5, 0.5), (30, 30, 0.15)])
def test_coverage(groups, size, share):
    """In 200 draws the interval misses the true gain of about one in twenty; drawing single queries misses more."""
    random = np.random.default_rng(0)
    towards = 1 / (1 + np.exp(-(0.3 + 2 * random.standard_normal(400_000))))
    truth = 100 * share * (2 * towards.mean() - 1)
    missed = naive = 0
    for _ in range(200):
        likely = random.choice(towards, groups)[:, None]
        moved, up = random.random((groups, size)) < share, random.random((groups, size)) < likely
        before, after = (moved & ~up).ravel().astype(int), (moved & up).ravel().astype(int)
        gain = paired_gain(before, after, np.arange(groups).repeat(size))
        missed += not gain["low"] <= truth <= gain["high"]
        change = 100 * (after - before)
        error = 1.96 * change.std() / np.sqrt(len(change))
        naive += abs(change.mean() - truth) > error
    assert missed <= 19
    if size > 1:
        assert naive > 19


def test_queries_are_grouped_by_the_item_that_answers_them():
    query = torch.tensor([0, 0, 1, 2, 3, 3])
    item = torch.tensor([1, 3, 1, 2, 0, 2])
    positives = Positives.from_pairs(query, item, 5, 4, complete=False)
    before, after = torch.tensor([[0, 1], [1, 0], [0, 1], [1, 0], [0, 1]]), torch.tensor([[1], [1], [2], [2], [0]])
    gain = r1_gain(before, after, positives)
    assert (gain["queries"], gain["groups"], gain["r1"]) == (4, 3, 75)
