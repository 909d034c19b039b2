import math

import pytest
import torch
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops
from looped import looped

from vsehub.losses import NeighborRetr
from vsehub.losses.base import without_other_positives
from vsehub.types import NeighborStats


def with_centralities(n, seed=0):
    """What a bank gives for n pairs; the nearest neighbours, which are not used, hold no number."""
    images, texts = torch.rand(2, n, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) - 0.3
    unused = torch.full((n, 1), torch.nan)
    return NeighborStats(unused, unused, images, texts)


def counted_of(i, n, positives):
    return [m for m in range(n) if m == i or not positives[i, m]]


def means_of(scores, positives):
    rows = [[row[j] for j in counted_of(i, len(scores), positives)] for i, row in enumerate(scores)]
    return [sum(row) / len(row) for row in rows]


def plan_of(scores, positives, temperature, rounds):
    """Sinkhorn's algorithm on the entries that count, rows first."""
    n = len(scores)
    counted = [counted_of(i, n, positives) for i in range(n)]
    plan = [[math.exp(scores[i][j] / temperature) * (j in counted[i]) for j in range(n)] for i in range(n)]
    for _ in range(rounds):
        sums = [sum(row) for row in plan]
        plan = [[share / total for share in row] for row, total in zip(plan, sums, strict=True)]
        totals = [sum(row[j] for row in plan) for j in range(n)]
        plan = [[share / total for share, total in zip(row, totals, strict=True)] for row in plan]
    return plan


def scaled(value, outside):
    low, high = min(outside, default=0.0), max(outside, default=0.0)
    return (value - low) / (high - low) if high > low else 0.0


def oracle(loss, centralities=None):
    """The three terms entry by entry; targets and weights are plain numbers, so that autograd sees predictions only."""

    def terms(scores, positives, centrality, items, plan):
        n, s = len(scores), scores.tolist()
        weighting = neighbor = uniform = 0.0
        for i in range(n):
            counted = counted_of(i, n, positives)
            norm = torch.log(sum(torch.exp(scores[i, j] / loss.temperature) for j in counted))
            log_p = {j: scores[i, j] / loss.temperature - norm for j in counted}
            weighting = weighting - math.exp(loss.centrality_scale * centrality[i]) * log_p[i]
            negatives = [j for j in counted if j != i]
            least = sorted((s[i][j] for j in negatives), reverse=True)[: loss.k]
            near = [j for j in negatives if s[i][j] >= least[-1]]
            outside = [j for j in negatives if j not in near]
            apart = [
                scaled(s[i][j], [s[i][m] for m in outside]) - scaled(items[j], [items[m] for m in outside])
                for j in near
            ]
            shares = [math.exp(loss.sharpness * value) for value in apart]
            targets = {i: 1.0} | {j: share / sum(shares) for j, share in zip(near, shares, strict=True)}
            norm = torch.log(sum(torch.exp(scores[i, j]) for j in targets))
            whole = sum(targets.values())
            neighbor = neighbor - sum(target / whole * (scores[i, j] - norm) for j, target in targets.items())
            share = loss.transport_share
            uniform = uniform - sum((share * plan[i][j] + (1 - share) * (i == j)) * log_p[j] for j in counted)
        return weighting + loss.neighbor_weight * neighbor + loss.uniform_weight * uniform

    def whole(scores, positives):
        n = len(scores)
        if centralities is None:
            images = means_of(scores.tolist(), positives)
            texts = means_of(scores.T.tolist(), positives.T)
        else:
            images, texts = (side.tolist() for side in centralities[2:])
        plan = plan_of(scores.tolist(), positives, loss.transport_temperature, loss.transport_rounds)
        turned = [list(column) for column in zip(*plan, strict=True)]
        rows = terms(scores, positives, images, texts, plan)
        return (rows + terms(scores.T, positives.T, texts, images, turned)) / n / 2

    return whole


SETTINGS = [
    ({}, False),
    ({"k": 1, "temperature": 0.2, "transport_rounds": 1, "neighbor_weight": 0.5}, True),
    ({"k": 3, "centrality_scale": 2.0, "sharpness": 0.7, "transport_share": 0.3, "transport_rounds": 5}, True),
    ({"k": 3, "uniform_weight": 2.0, "transport_temperature": 0.5, "transport_rounds": 5}, False),
]


@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("settings", "with_bank"), SETTINGS)
def test_equals_loops(settings, with_bank, n, kind):
    loss, stats = NeighborRetr(**settings), with_centralities(n) if with_bank else None
    equals_loops(lambda scores, positives: loss(scores, positives, stats), oracle(loss, stats), n, kind)


def test_duplicates_equal_loops():
    """Pairs that are there twice, as pairs of two images: equal rows, equal columns, a negative equal to the pair."""
    scores, _ = batch(5, "pairs")
    twice = torch.arange(10) // 2
    scores, positives = scores[twice][:, twice], torch.eye(10, dtype=torch.bool)
    loss = NeighborRetr(k=3)
    torch.testing.assert_close(loss(scores, positives)["loss"], oracle(loss)(scores, positives), **EXACT)


def test_a_neighbour_whose_share_underflows_is_pushed():
    """Outside the neighbourhood nearly all is equal, so that what is inside lies many ranges apart."""
    n, loss = 8, NeighborRetr(k=5)
    for seed in range(3):
        random = torch.Generator().manual_seed(seed)
        scores = 0.2 + 0.6 * torch.rand(n, n, generator=random, dtype=torch.float64)
        scores[:, 0] = -0.5
        scores[:, 1] = -0.5 + 1e-5 * torch.arange(n)
        scores, positives = scores.float().requires_grad_(), torch.eye(n, dtype=torch.bool)
        counted = without_other_positives(positives)
        centrality, within = torch.linspace(0, 1, n), loss.neighborhood(scores, counted)
        targets = loss.neighbor_targets(scores, counted, centrality, within)
        underflown = within & (targets == 0)
        assert underflown.sum() > n
        value = loss._neighbor_term(scores, counted, centrality)
        for i in range(n):
            row, negatives = scores[i].tolist(), [j for j in range(n) if j != i]
            near = sorted(negatives, key=lambda j, row=row: row[j])[-5:]
            norm = math.log(sum(math.exp(row[j]) for j in [i, *near]))
            wanted = -sum(targets[i, j].item() * (row[j] - norm) for j in [i, *near])
            assert value[i].item() == pytest.approx(wanted, rel=1e-5)
        (gradient,) = torch.autograd.grad(value.sum(), scores)
        assert (gradient[underflown] > 0).all()


@looped("kind", ["distinct", "negative"])
def test_copies_whose_last_bits_differ_are_neighbours_together(kind):
    """Copies of an image that were encoded in different chunks; the neighbours are those of exact copies."""
    n = 12
    exact, _ = batch(n, kind)
    exact = exact.float()[:, torch.arange(n) // 4].contiguous()
    random = torch.Generator().manual_seed(1)
    flips = torch.randint(-4, 5, (n, n), generator=random)
    apart = exact + flips * torch.finfo(exact.dtype).eps * exact.abs()
    assert not torch.equal(apart, exact)
    positives = torch.eye(n, dtype=torch.bool)
    counted = without_other_positives(positives)
    for k in (1, 2, 3, 5):
        loss = NeighborRetr(k=k)
        assert torch.equal(loss.neighborhood(apart, counted), loss.neighborhood(exact, counted))
        for i, row in enumerate(exact.tolist()):
            least = sorted((row[j] for j in range(n) if j != i), reverse=True)[k - 1]
            near = [j for j in range(n) if j == i or row[j] >= least]
            assert loss.neighborhood(apart, counted)[i].nonzero().flatten().tolist() == near
        gradients = []
        for scores in (exact, apart):
            scores = scores.clone().requires_grad_()
            gradients.append(torch.autograd.grad(loss(scores, positives)["loss"], scores)[0])
        torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


@looped("dtype", [torch.bfloat16, torch.float16, torch.float32])
@looped("scale", [1.0, 50.0])
@looped("kind", KINDS)
@looped("n", [1, 2, 30])
def test_large_scores_are_finite(n, kind, scale, dtype):
    scores, positives = batch(n, kind)
    scores = (scale * scores).to(dtype).requires_grad_()
    terms = NeighborRetr(transport_temperature=0.02)(scores, positives)
    (gradient,) = torch.autograd.grad(terms["loss"], scores)
    assert all(torch.isfinite(term) for term in terms.values())
    assert torch.isfinite(gradient).all()
