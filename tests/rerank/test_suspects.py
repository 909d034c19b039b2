"""Planted items are named, ordinary hubs are not."""

import math

import numpy as np
import pytest
import torch
from looped import looped
from scipy.stats import binom

from vsehub.metrics.occurrences import occurrence_metrics
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import as_vectors
from vsehub.report.health import verdict_text
from vsehub.rerank.suspects import beyond, excess, suspects
from vsehub.rerank.verdict import CHECKS, verdict


def unit(rows):
    return torch.nn.functional.normalize(rows, dim=1)


def space(queries, items, dim=32, inner=12, seed=0, gap=2.0):
    """Queries and items of two encoders: a cone each, with a gap between them."""
    random = torch.Generator().manual_seed(seed)
    basis = torch.randn(inner, dim, generator=random)
    sides = torch.randn(2, dim, generator=random)
    points = torch.randn(items, inner, generator=random)
    own = torch.randint(items, (queries,), generator=random)
    near = points[own] + 0.7 * torch.randn(queries, inner, generator=random)
    return unit(near @ basis + gap * sides[1]), unit(points @ basis + gap * sides[0])


def found(queries, items, k=10):
    positions = (queries @ items.T).topk(k, dim=1).indices
    return suspects(positions, as_vectors("queries", queries), as_vectors("items", items))


@looped("seed", range(3))
@looped(("queries", "items"), [(500, 500), (2000, 300), (300, 5000), (2000, 10_000)])
@pytest.mark.long
def test_ordinary_items_are_not_suspected_and_a_planted_one_is(queries, items, seed):
    asked, among = space(queries, items, seed=seed, gap=4.0)
    assert found(asked, among) == []
    for place in (0, items // 2):
        middle = unit(asked.mean(dim=0, keepdim=True))
        (one,) = found(asked, torch.cat([among[:place], middle, among[place:]]))
        assert one.item == place
        assert one.lists > 0.05
        assert one.lists > one.first
        assert one.near_chance < 0.3
        assert one.near_chance * one.lists_chance < 0.01


@looped("gap", [0.0, 0.8, 1.5, 2.0])
@looped("norms", [0.0, 0.3])
def test_ordinary_hubs_behind_a_gap_are_not_suspected(gap, norms):
    """Among few items the most central one is first for many queries of all kinds."""
    named, largest = 0, []
    for seed in range(10):
        asked, among = space(500, 112, dim=64, inner=8, gap=3 * gap, seed=seed)
        random = torch.Generator().manual_seed(seed)
        among = among * (norms * torch.randn(112, 1, generator=random)).exp()
        named += bool(found(asked, among))
        first = torch.bincount((asked @ among.T).argmax(dim=1), minlength=112)
        largest.append(first.max().item() / 500)
    assert named == 0
    assert gap < 1 or max(largest) > 0.05


def test_the_excess_is_that_of_an_exponential_tail():
    levels = -torch.log1p(-torch.arange(1, 20_001).double() / 20_001)  # the quantiles of exponential numbers
    chosen = torch.tensor([3, 14_000, 18_000, 19_999])
    wanted = levels + math.log(0.3)
    torch.testing.assert_close(excess(levels[chosen], levels), wanted[chosen], rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(excess(5 * levels[chosen] - 2, 5 * levels - 2), wanted[chosen], rtol=1e-3, atol=1e-3)
    assert excess(levels[chosen], torch.ones(90)).tolist() == [0] * 4
    assert beyond(torch.tensor([3.0]), 1.0, 1.0, least_mean=0.5).tolist() == [4]


def test_given_scores_are_those_of_vectors():
    asked, among = space(400, 200, seed=1)
    among[5] = unit(asked.mean(dim=0, keepdim=True))[0]
    scores = asked @ among.T
    positions = scores.topk(10, dim=1).indices
    by_scores = suspects(positions, as_vectors("queries", scores), UnitVectors(200))
    assert [one.item for one in by_scores] == [one.item for one in found(asked, among)] == [5]


def test_what_many_alike_queries_want_is_not_planted():
    """A fifth of all queries ask for one thing: it is popular, not planted."""
    asked, among = space(1000, 800, seed=4)
    popular = unit(among[3:4] + 0.05 * torch.randn(250, 32, generator=torch.Generator().manual_seed(5)))
    assert found(torch.cat([asked, popular]), among) == []


def test_the_verdict_is_the_worst_check():
    healthy = {"skew_10": 0.5, "largest_hub_10": 30.0, "antihub_rate_10": 0.01}
    for changes, level, name in (
        ({}, "ok", None),
        ({"skew_10": 1.7}, "warn", "skewness"),
        ({"skew_10": 5.3}, "fail", "skewness"),
        ({"largest_hub_10": 150.0}, "warn", "largest_hub"),
        ({"antihub_rate_10": 0.6}, "fail", "antihubs"),
    ):
        told = verdict(healthy | changes, 10, 1000, 500, [])
        assert told["level"] == level
        assert [one["name"] for one in told["checks"] if one["level"] != "ok"] == ([name] if name else [])
    assert {one["name"] for one in told["checks"]} == set(CHECKS)
    assert verdict(healthy, 10, 1000, 500, [None])["level"] == "fail"


def lists(queries, items, k, hub=0.0, seed=0):
    """Random lists, in which one item replaces the last place of a share of the queries."""
    random = np.random.default_rng(seed)
    drawn = np.stack([random.choice(items, k, replace=False, shuffle=False) for _ in range(queries)])
    drawn[: round(hub * queries), -1] = 3
    return torch.from_numpy(drawn)


@looped(("queries", "items", "k"), [(1000, 1_000_000, 10), (100, 10_000, 1), (30, 3000, 10), (3, 500, 10), (5, 10, 10)])
def test_random_lists_are_healthy_and_a_hub_is_not(queries, items, k):
    """Whatever the numbers: of many items few can be found, and few queries find the same item twice by chance."""
    for hub, wanted in ((0.0, {"ok"}), (0.9, {"warn", "fail"})):
        counts = torch.bincount(lists(queries, items, k, hub).flatten(), minlength=items)
        measured = occurrence_metrics({k: counts})
        found = verdict(measured, k, queries, items, [])
        if k < items and (not hub or queries > 5):
            assert found["level"] in wanted
        skewness, largest, antihubs, planted = found["checks"]
        p = k / items
        if k < items:
            n = np.arange(queries + 1)
            chances = binom.pmf(n, queries, p)
            mean = (chances * n).sum()
            moments = [(chances * (n - mean) ** power).sum() for power in (2, 3)]
            assert skewness["chance"] == pytest.approx(moments[1] / moments[0] ** 1.5, rel=1e-6)
            assert antihubs["chance"] == pytest.approx(chances[0])
            above = 1 - (1 - chances[n > round(largest["chance"] * queries)].sum()) ** items
            assert above <= 0.0101
            if not hub:
                assert skewness["value"] == pytest.approx(skewness["chance"], rel=0.1, abs=0.1)
                assert antihubs["value"] == pytest.approx(antihubs["chance"], abs=0.01)
        else:
            assert (skewness["chance"], largest["chance"], antihubs["chance"]) == (0, 1, 0)
            assert hub or found["level"] == "ok"
        assert planted["chance"] == 0
    if items == 1_000_000:
        assert skewness["chance"] == pytest.approx(10, abs=0.01)
        assert verdict_text(verdict({**measured, "skew_10": 10.0, "largest_hub_10": 2.0}, k, queries, items, [])) == (
            "ok: skewness of N_10 10, by chance 10"
        )
