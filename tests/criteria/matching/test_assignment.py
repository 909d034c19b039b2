import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from vsehub.criteria.matching.assignment import Assignment, k_best


def by_trying(scores, places):
    """All assignments, the largest sum first."""
    queries, items = scores.shape
    allowed = [
        assignment
        for assignment in itertools.product(range(items), repeat=queries)
        if max(assignment.count(item) for item in range(items)) <= places
    ]
    return sorted(allowed, key=lambda assignment: -sum(scores[query, item] for query, item in enumerate(assignment)))


@settings(max_examples=30, deadline=None)
@given(some.integers(1, 4), some.integers(1, 4), some.integers(0, 10**6), some.booleans())
def test_k_best_are_the_best(queries, items, seed, tied):
    random = np.random.default_rng(seed)
    scores = random.integers(-2, 3, (queries, items)).astype(float) if tied else random.normal(size=(queries, items))
    places = -(-queries // items)
    all_ = by_trying(scores, places)
    solutions = [tuple(solution.tolist()) for solution in itertools.islice(k_best(scores, places), len(all_) + 3)]
    assert len(solutions) == len(set(solutions)) == len(all_)
    totals = [sum(scores[query, item] for query, item in enumerate(solution)) for solution in solutions]
    assert totals == pytest.approx([sum(scores[q, m] for q, m in enumerate(solution)) for solution in all_])
    assert set(solutions) == set(all_)


def test_lists_follow_the_solutions():
    generator = torch.Generator().manual_seed(1)
    scores = torch.rand(4, 5, generator=generator, dtype=torch.float64)
    solutions = by_trying(scores.numpy(), 1)[:6]
    pairs = Assignment(solutions=6).match(scores, 3)
    for query in range(4):
        wanted = list(dict.fromkeys(solution[query] for solution in solutions))[:3]
        assert pairs[pairs[:, 0] == query, 1].tolist() == wanted
        order = Assignment(solutions=6).rescore(scores, k=3)[query].argsort(descending=True, stable=True).tolist()
        rest = [item for item in scores[query].argsort(descending=True).tolist() if item not in wanted]
        assert order == wanted + rest
