"""The verdict on a plain ranking."""

import numpy as np
import pytest
import torch
from looped import looped
from scipy.stats import binom

from vsehub.metrics.occurrences import occurrence_metrics
from vsehub.ranking.verdict import CHECKS, verdict


def test_the_verdict_is_the_worst_check():
    healthy = {"skew_10": 0.5, "largest_hub_10": 30.0, "antihub_rate_10": 0.01}
    for changes, level, name in (
        ({}, "ok", None),
        ({"skew_10": 1.7}, "warn", "skewness"),
        ({"skew_10": 5.3}, "fail", "skewness"),
        ({"largest_hub_10": 150.0}, "warn", "largest_hub"),
        ({"antihub_rate_10": 0.6}, "fail", "antihubs"),
    ):
        result = verdict(healthy | changes, 10, 1000, 500)
        assert result["level"] == level
        assert [check["name"] for check in result["checks"] if check["level"] != "ok"] == ([name] if name else [])
    assert {check["name"] for check in result["checks"]} == set(CHECKS)


def lists(queries, items, k, hub=0.0, seed=0):
    """Random lists, in which one item replaces the last place of a share of the queries."""
    random = np.random.default_rng(seed)
    drawn = np.stack([random.choice(items, k, replace=False, shuffle=False) for _ in range(queries)])
    drawn[: round(hub * queries), -1] = 3
    return torch.from_numpy(drawn)


@looped(("queries", "items", "k"), [(1000, 1_000_000, 10), (100, 10_000, 1), (30, 3000, 10), (3, 500, 10)])
def test_random_lists_are_healthy_and_a_hub_is_not(queries, items, k):
    """Whatever the numbers: of many items few can be found, and few queries find the same item twice by chance."""
    n, p = np.arange(queries + 1), k / items
    chances = binom.pmf(n, queries, p)
    mean = (chances * n).sum()
    moments = [(chances * (n - mean) ** power).sum() for power in (2, 3)]
    for hub, wanted in ((0.0, {"ok"}), (0.9, {"warn", "fail"})):
        counts = torch.bincount(lists(queries, items, k, hub).flatten(), minlength=items)
        result = verdict(occurrence_metrics({k: counts}), k, queries, items)
        assert queries <= 5 or result["level"] in wanted
        skewness, largest, antihubs = result["checks"]
        assert skewness["chance"] == pytest.approx(moments[1] / moments[0] ** 1.5, rel=1e-6)
        assert antihubs["chance"] == pytest.approx(chances[0])
        assert 1 - (1 - chances[n > round(largest["chance"] * queries)].sum()) ** items <= 0.0101
        if not hub:
            assert skewness["value"] == pytest.approx(skewness["chance"], rel=0.1, abs=0.1)
            assert antihubs["value"] == pytest.approx(antihubs["chance"], abs=0.01)


def test_lists_of_all_items_have_no_hubs():
    result = verdict({"skew_10": 0.0, "largest_hub_10": 5.0, "antihub_rate_10": 0.0}, 10, 5, 10)
    assert [check["chance"] for check in result["checks"]] == [0, 1, 0]
    assert result["level"] == "ok"
