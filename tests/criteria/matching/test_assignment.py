import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria.matching import assignment as module
from vsehub.criteria.matching.assignment import Assignment, k_best, solve


def by_trying(scores, places):
    """All assignments, the largest sum first."""
    queries, items = scores.shape
    allowed = [
        one
        for one in itertools.product(range(items), repeat=queries)
        if max(one.count(item) for item in range(items)) <= places
    ]
    return sorted(allowed, key=lambda one: -sum(scores[query, item] for query, item in enumerate(one)))


@settings(max_examples=60, deadline=None)
@given(some.integers(1, 4), some.integers(1, 4), some.integers(0, 10**6), some.booleans())
def test_k_best_are_the_best(queries, items, seed, tied):
    random = np.random.default_rng(seed)
    scores = random.integers(-2, 3, (queries, items)).astype(float) if tied else random.normal(size=(queries, items))
    places = -(-queries // items)
    all_ = by_trying(scores, places)
    found = [tuple(one.tolist()) for one in k_best(scores, places, len(all_) + 3)]
    assert len(found) == len(set(found)) == len(all_)
    totals = [sum(scores[query, item] for query, item in enumerate(one)) for one in found]
    assert totals == pytest.approx([sum(scores[q, m] for q, m in enumerate(one)) for one in all_])
    assert set(found) == set(all_)


def test_the_sum_counts_and_not_the_single_best():
    """Greedy takes 1.0 and is left with 0.0; the best sum takes the two 0.9."""
    scores = torch.tensor([[1.0, 0.9], [0.9, 0.0]])
    assert Assignment().match(scores, 1).tolist() == [[0, 1], [1, 0]]
    assert Assignment().rescore(scores, k=1).argmax(dim=1).tolist() == [1, 0]


def test_every_query_is_served_where_items_are_few():
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(10, 3, generator=generator)
    pairs = Assignment().match(scores, 1)
    assert sorted(pairs[:, 0].tolist()) == list(range(10))
    assert torch.bincount(pairs[:, 1]).max() <= 4
    best = by_trying(scores[:7].numpy(), 3)[0]
    mine = Assignment().match(scores[:7], 1)
    assert dict(mine.tolist()) == dict(enumerate(best))


def test_one_solution_is_one_piece_of_work(monkeypatch):
    calls = []
    monkeypatch.setattr(module, "solve", lambda *given: calls.append(1) or solve(*given))
    assert len(list(k_best(np.eye(6), 1, 1))) == len(calls) == 1


def test_lists_follow_the_solutions():
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    solutions = by_trying(scores.numpy(), 1)[:6]
    pairs = Assignment(solutions=6).match(scores, 3)
    for query in range(4):
        wanted = list(dict.fromkeys(one[query] for one in solutions))[:3]
        assert pairs[pairs[:, 0] == query, 1].tolist() == wanted
    lists = Assignment(solutions=6).rescore(scores, k=3).argsort(dim=1, descending=True, stable=True)
    for query in range(4):
        own = pairs[pairs[:, 0] == query, 1].tolist()
        others = [item for item in scores[query].argsort(descending=True).tolist() if item not in own]
        assert lists[query].tolist() == own + others


@looped(
    ("call", "message"),
    [
        (lambda: Assignment(0), "solutions is 0; expected a whole number above 0"),
        (lambda: Assignment(limit_seconds=0), "limit_seconds is 0; expected a number above 0"),
        (lambda: Assignment(limit_seconds=1e-9).match(torch.rand(50, 60), 1), "would take about 0 s, more than limit"),
        (
            lambda: Assignment(50, 1.0).match(torch.rand(2000, 2000), 1),
            r"50 exact assignments of 2000 queries and 2000",
        ),
        (
            lambda: Assignment().match(torch.zeros(40000, 1).expand(-1, 30000), 1),
            "needs a matrix of 2,400,000,000 scores",
        ),
        (lambda: Assignment().match(torch.full((2, 2), torch.nan), 1), "scores hold NaN or infinite values"),
        (lambda: Assignment().rescore(torch.eye(2), torch.eye(2)), "no inductive form|has no form"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InputError, match=message):
        call()
