"""How far two rankings differ, against loops over sets."""

import numpy as np
import pytest
import torch
from looped import looped

from vsehub.metrics import Positives
from vsehub.metrics.changes import Changes, RoundingChanges


def lists(generator, queries, items, depth):
    return torch.from_numpy(np.stack([generator.permutation(items)[:depth] for _ in range(queries)]))


@looped("seed", range(5))
def test_all_figures_are_those_of_loops(seed):
    generator = np.random.default_rng(seed)
    exact, rounded = lists(generator, 9, 12, 11), lists(generator, 9, 12, 11)
    rounded[:3] = exact[:3]
    pairs = [(query, item) for query in (0, 3, 4, 7, 8) for item in generator.permutation(12)[: query % 2 + 1]]
    positives = Positives.from_pairs(*torch.tensor(pairs).T, 9, 12, complete=False)
    changes, plain = RoundingChanges(4), Changes()
    for rows in (slice(0, 2), slice(2, 3), slice(3, 9)):  # the second has no query with a positive
        own = positives.of(torch.arange(9)[rows])
        changes.add(exact[rows], rounded[rows], own)
        plain.add(exact[rows, :4], rounded[rows, :4])
    sides = exact.tolist(), rounded.tolist()
    first = np.mean([one[0] != two[0] for one, two in zip(*sides, strict=True)])
    overlap = np.mean([len(set(one[:4]) & set(two[:4])) / 4 for one, two in zip(*sides, strict=True)])
    known = {query for query, _ in pairs}
    found = [
        [sum(any((query, item) in pairs for item in side[query][:k]) for query in known) for side in sides]
        for k in (1, 5, 10)
    ]
    recall = max(100 * abs(one - two) / len(known) for one, two in found)
    assert changes.metrics() == pytest.approx(
        {"queries": 9, "k": 4, "first": first, "overlap": overlap, "recall": recall}
    )
    assert plain.metrics() == pytest.approx({"first": first, "overlap": overlap})


def test_without_known_answers_there_is_no_recall():
    changes, same = RoundingChanges(2), torch.tensor([[1, 0], [0, 1]])
    changes.add(same, same, None)
    assert changes.metrics() == {"queries": 2, "k": 2, "first": 0.0, "overlap": 1.0, "recall": None}
