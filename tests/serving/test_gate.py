"""The gate against many small items, over a collection in memory."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from vsehub.neighbors.vectors import as_vectors
from vsehub.serving.databases.collection import Items
from vsehub.serving.databases.gate import RANKINGS, Gate

K = 10


class InMemory:
    """As much of a collection as the gate asks of it."""

    def __init__(self, vectors):
        self.vectors, self.database, self.place = vectors, self, SimpleNamespace(address="memory")

    def __len__(self):
        return len(self.vectors)

    def search(self, queries, k):
        values, positions = (torch.as_tensor(queries)[:, :-1] @ self.vectors.T).topk(k, dim=1)
        return [
            [(str(one), value) for one, value in zip(*row, strict=True)]
            for row in zip(positions.tolist(), values.tolist(), strict=True)
        ]


def drawn(gap, seed):
    """Queries (900, 32) and items (1500, 32), with a gap between them."""
    random = torch.Generator().manual_seed(seed)
    basis, sides = torch.randn(16, 32, generator=random), 4 * torch.randn(2, 32, generator=random)
    points = torch.randn(1500, 16, generator=random)
    asked = points[torch.randint(1500, (900,), generator=random)] + 0.7 * torch.randn(900, 16, generator=random)
    return normalize(asked @ basis + gap * sides[0], dim=1), normalize(points @ basis + gap * sides[1], dim=1)


def entering(gate, vectors):
    ids = [str(row) for row in range(len(vectors))]
    return gate.entries(Items(as_vectors("items", vectors), torch.zeros(len(vectors)), ids, None), 1.0, 0.0)


@pytest.mark.parametrize("gap", [0.0, 1.0])
def test_many_small_items_are_held_and_ordinary_ones_are_not(gap):
    """150 items within the budget of one item, and 12 copies of one, among 300 ordinary items or alone."""
    queries, items = drawn(gap, 0)
    held, ordinary = items[:1200], items[1200:]
    sentinels, known, users = queries.split(300)
    gate = Gate.of(InMemory(held), sentinels, K)
    random = torch.Generator().manual_seed(1)
    parts = torch.rand(2000, 1, generator=random)
    picked = torch.randint(300, (2000,), generator=random)
    tried = normalize((1 - parts) * held[picked] + parts * known[picked], dim=1)
    shares = entering(gate, tried).shares["plain"]
    within = (shares <= gate.budget["plain"]).nonzero().flatten()
    best = within[shares[within].argsort(descending=True)]
    copies = normalize(tried[best[:1]] + 1e-3 * torch.randn(12, 32, generator=random), dim=1)
    assert gate.beyond(entering(gate, ordinary)).sum() <= 2
    least = (users @ held.T).topk(K, dim=1).values[:, -1:]
    for planted in (tried[best[:150]], copies):
        for among in (planted, torch.cat([planted, ordinary])):
            entries = entering(gate, among)
            own = entries.shares["plain"][: len(planted)]
            assert len(planted) == 12 or (own <= gate.budget["plain"]).all()
            beyond = gate.beyond(entries)
            taken = users @ planted.T > least
            before, after = (taken[:, one].any(dim=1).double().mean() for one in (slice(None), ~beyond[: len(planted)]))
            assert after < 0.7 * before
            assert beyond[: len(planted)].sum() >= (12 if len(planted) == 12 else 60)
            for row in beyond.nonzero().flatten().tolist():
                assert "budget" in gate.reason(entries, row) or "would be usual" in gate.reason(entries, row)


def test_sums_of_groups_equal_those_of_loops():
    queries, items = drawn(1.0, 3)
    gate = Gate.of(InMemory(items[:1200]), queries[:60], K)
    entries = entering(gate, items[1200:1260])
    least = (queries[:60] @ items[:1200].T).topk(K, dim=1).values[:, -1:]
    entered = (queries[:60] @ items[1200:1260].T > least).numpy()
    for size, sums in entries.together["plain"].items():
        for row in range(60):
            lists = entered[:, row]
            shared = (entered & lists[:, None]).sum(axis=0)
            others = sorted((j for j in range(60) if j != row and shared[j]), key=lambda j: (-shared[j], -entered[:, j].sum()))  # fmt: skip  # noqa: E501
            wanted = entered[:, [row, *others[: size - 1]]].sum() / 60
            assert sums[row].item() == pytest.approx(wanted)
    assert max(entries.together["plain"]) <= 60


def test_the_stated_rate_of_the_collections_own_items_holds():
    """Either budget is taken from a quarter of the rate, so that both together stay below it."""
    queries, items = drawn(0.5, 4)
    queries = queries.repeat(3, 1) + 0.1 * torch.randn(2700, 32, generator=torch.Generator().manual_seed(2))
    rate = 0.05
    gate = Gate.of(InMemory(items), queries, K, false_alarms=rate)
    counts = np.zeros(len(items))
    for row in InMemory(items).search(torch.cat([queries, queries[:, :1]], dim=1).numpy(), K):
        for one, _ in row:
            counts[int(one)] += 1 / len(queries)
    for name in RANKINGS:
        assert (counts > gate.budget[name] + 1e-12).sum() <= rate * len(items) / 4
        assert (counts >= gate.budget[name] - 1e-12).sum() > rate * len(items) / 4
    random_part = torch.randperm(len(items), generator=torch.Generator().manual_seed(3))
    new = Gate.of(InMemory(items[random_part[300:]]), queries, K, false_alarms=rate)
    assert new.beyond(entering(new, items[random_part[:300]])).sum() <= 2 * rate * 300
