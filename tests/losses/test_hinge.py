import itertools
import math

import pytest
import torch
from looped import looped
from torch.nn.functional import cross_entropy

from vsehub.losses import InfoNCE, KNNMargin, MaxMargin, SumMargin

EXACT = {"rtol": 1e-9, "atol": 1e-12}
SIZES = [1, 2, 7, 12]


def batch(n, seed=0, coarse=False):
    """Scores, many below 0, where `coarse` with ties; pairs of three images, so that some share one."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(n, n, generator=generator, dtype=torch.float64) * 2 - 1
    ids = torch.arange(n) // 3 if n > 2 else torch.arange(n)
    ids = ids[torch.randperm(n, generator=generator)]
    return (scores * 4).round() / 4 if coarse else scores, ids[:, None] == ids[None, :]


def naive_hinge(scores, positives, margin, k):
    """Sum over rows, then columns, of the k largest hinge costs, by loops over single numbers."""
    s, total = scores.tolist(), 0.0
    for i in range(len(s)):
        row = [max(0.0, margin - s[i][i] + s[i][n]) for n in range(len(s)) if not positives[i, n]]
        column = [max(0.0, margin - s[i][i] + s[n][i]) for n in range(len(s)) if not positives[n, i]]
        total += sum(sorted(row, reverse=True)[:k]) + sum(sorted(column, reverse=True)[:k])
    return total


@looped("coarse", [False, True])
@looped("n", SIZES)
@looped(("loss", "k"), [(SumMargin(0.3), None), (MaxMargin(0.3), 1), (KNNMargin(0.3, 1), 1), (KNNMargin(0.3, 4), 4)])
def test_naive_loops(loss, k, n, coarse):
    for seed in range(5):
        scores, positives = batch(n, seed, coarse)
        expected = naive_hinge(scores, positives, 0.3, k)
        assert loss(scores, positives)["loss"].item() == pytest.approx(expected, rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("n", SIZES)
def test_infonce_is_the_mean_cross_entropy(n):
    scores = batch(n)[0].requires_grad_()
    loss = InfoNCE(0.2)(scores, torch.eye(n, dtype=torch.bool))["loss"]
    target = torch.arange(n)
    expected = (cross_entropy(scores / 0.2, target) + cross_entropy(scores.T / 0.2, target)) / 2
    # The temperature is a float32 parameter.
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=1e-9)
    ours, theirs = (torch.autograd.grad(value, scores)[0] for value in (loss, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-9)


def test_infonce_leaves_the_other_positives_out():
    scores, positives = batch(12)
    expected = 0.0
    for matrix, mask in ((scores, positives), (scores.T, positives.T)):
        for i in range(12):
            kept = [i] + [n for n in range(12) if not mask[i, n]]
            expected += cross_entropy(matrix[i, kept][None] / 0.2, torch.tensor([0])).item() / 24
    assert InfoNCE(0.2)(scores, positives)["loss"].item() == pytest.approx(expected, rel=1e-6)


def test_infonce_comes_back_from_its_bound():
    """The best negatives score above the pairs, so that a lower scale is a lower loss."""
    scores, positives = -torch.eye(4), torch.eye(4, dtype=torch.bool)
    loss = InfoNCE(0.07, max_scale=50)
    with torch.no_grad():
        loss.log_scale.fill_(math.log(1000))
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
    scales = []
    for _ in range(20):
        optimizer.zero_grad()
        terms = loss(scores, positives)
        terms["loss"].backward()
        optimizer.step()
        scales.append(1 / terms["temperature"].item())
    assert scales[0] == pytest.approx(50)
    assert scales[-1] < 49
    assert all(later < earlier for earlier, later in itertools.pairwise(scales))


def test_infonce_learns_its_temperature_up_to_a_bound():
    scores, positives = batch(6)
    loss = InfoNCE(0.07)
    (gradient,) = torch.autograd.grad(loss(scores, positives)["loss"], loss.log_scale)
    assert gradient.item() != 0
    assert not InfoNCE(learnable=False).log_scale.requires_grad
    assert InfoNCE(1e-4, max_scale=50)(scores, positives)["temperature"].item() == pytest.approx(1 / 50)
