"""Items planted for a topic: how they are made, and that the scans of the study see a plain case."""

import torch

from experiments.suspects.sets import Set
from experiments.topics.scans import SCANS, clusters, scan
from experiments.topics.sets import KINDS, planted
from experiments.topics.study import features, regression


def unit(rows):
    return torch.nn.functional.normalize(rows, dim=1)


def topics(seed=0):
    """Ten topics of 60 queries and 60 items each, in 32 dimensions."""
    random = torch.Generator().manual_seed(seed)
    centres = torch.randn(10, 32, generator=random)
    queries, items = (
        unit(centres.repeat_interleave(60, dim=0) + torch.randn(600, 32, generator=random)) for _ in range(2)
    )
    return Set("topics", queries, items)


def test_clusters_of_each_size_are_topics():
    one = topics()
    groups = clusters(one.queries)
    assert sum(len(rows) for rows in groups) <= 2 * 600  # ten clusters and twenty; smaller ones have too few queries
    assert all(len(rows) >= 20 for rows in groups)
    members = torch.bincount(torch.cat(groups), minlength=600)
    assert members.max() <= 2


def test_an_item_is_planted_for_the_queries_of_a_topic():
    one = topics()
    whole, items = planted(one, 0.1, seed=3)
    assert [item.kind for item in items] == list(KINDS)
    changed = (whole.items != one.items).any(dim=1).nonzero()[:, 0].tolist()
    assert changed == sorted(item.place for item in items)
    lists = (whole.queries @ whole.items.T).topk(10, dim=1).indices
    for item in items:
        held = (lists == item.place).any(dim=1)
        assert len(item.unknown) == 30
        if item.kind in ("mean", "fitted"):
            assert held[item.unknown].float().mean() > 0.5 > held.float().mean()


def test_the_scans_see_the_mean_of_a_topic():
    one = topics()
    items = one.items.clone()
    items[17] = unit(one.queries[:60].mean(dim=0, keepdim=True))[0]
    scores, positions = scan(Set("topics", one.queries, items), [torch.arange(60)])
    assert scores.shape == (600, len(SCANS))
    assert (positions[:60] == 17).any(dim=1).float().mean() > 0.8
    for name in ("clusters, lists", "clusters, nearness", "clusters, both", "own queries, lead"):
        assert scores[:, SCANS.index(name)].argmax() == 17, name


def test_weights_are_those_of_a_logistic_regression():
    random = torch.Generator().manual_seed(0)
    ordinary, wanted = torch.rand(400, 2, generator=random), torch.rand(300, 2, generator=random) + 0.4
    weights = regression(ordinary, wanted)
    rows, truth = features(torch.cat([ordinary, wanted])), torch.cat([torch.zeros(400), torch.ones(300)]).double()
    slope = rows.T @ ((rows @ weights).sigmoid() - truth) + weights
    torch.testing.assert_close(slope, torch.zeros(3).double(), atol=1e-8, rtol=0)
