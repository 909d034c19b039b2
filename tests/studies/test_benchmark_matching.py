"""The matching benchmark runs at tiny sizes; what it measures is not tested."""

from functools import cache
from importlib import import_module

import pytest
import torch

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def matching():
    """The benchmark's module."""
    return import_module("experiments.benchmarks.matching")


@pytest.mark.long
def test_both_ways_find_the_same(matching, monkeypatch):
    """Memory, which takes a process of its own each time, is measured in one direction."""
    whole = matching.extra_megabytes
    once = cache(lambda searched, *rest: whole(40, "t2i", searched, *rest))
    monkeypatch.setattr(matching, "extra_megabytes", lambda images, direction, *rest: once(*rest))
    result = matching.measure(40, CPU, rounds=1, dim=8)
    assert {part["queries"] for part in result["directions"].values()} == {40, 200}
    for part in result["directions"].values():
        assert [way["relaxation"] for way in part["ways"]] == [1.0, 2.0, 3.5]
        assert all(way["ratio"] > 0 for way in part["ways"])
        assert part["match_mb"] < 200
        assert part["search_mb"] < 200
    assert "times as fast" in matching.text(result)


def test_other_pairs_are_an_error(matching, monkeypatch):
    monkeypatch.setattr(matching, "plain_walk", lambda *rest: [(0, 0)])
    with pytest.raises(AssertionError, match="the pairs differ"):
        matching.measure_direction(torch.rand(20, 4), 1, CPU)


def test_the_vectors_have_hubs(matching):
    sides = matching.make(100, CPU)
    queries, items = matching.directed(sides, "t2i")
    counts = torch.bincount((queries @ items.T).topk(10).indices.flatten(), minlength=100)
    assert counts.max() > 4 * 50
