import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from vsehub.criteria.matching.assignment import Assignment


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
def test_no_assignment_is_better(queries, items, seed, tied):
    random = np.random.default_rng(seed)
    scores = random.integers(-2, 3, (queries, items)).astype(float) if tied else random.normal(size=(queries, items))
    pairs = Assignment().match(torch.from_numpy(scores), 3).tolist()
    all_ = by_trying(scores, -(-queries // items))
    assert tuple(item for _, item in sorted(pairs)) in all_
    assert sum(scores[pair] for pair in map(tuple, pairs)) == pytest.approx(
        sum(scores[query, item] for query, item in enumerate(all_[0]))
    )
    assert pairs == sorted(pairs, key=lambda pair: (-scores[tuple(pair)], pair[0]))


def test_a_list_is_the_assigned_item_then_the_others():
    scores = torch.rand(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    first = by_trying(scores.numpy(), 1)[0]
    for query, row in enumerate(Assignment().rescore(scores, k=3).argsort(dim=1, descending=True).tolist()):
        plain = scores[query].argsort(descending=True).tolist()
        assert row == [first[query], *(item for item in plain if item != first[query])]
