import logging
import math

import pytest
import torch
from looped import looped
from torch.nn.functional import normalize

from vsehub.losses import HAL
from vsehub.neighbors import MemoryBank
from vsehub.types import NeighborStats

EXACT = {"rtol": 1e-9, "atol": 1e-12}


def batch(n, k=6, seed=0, duplicates=True):
    """Scores of either sign, the positives' mask of images with several captions, and neighbours largest first."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.rand(n, n, generator=generator, dtype=torch.float64) * 1.6 - 0.6
    ids = torch.arange(n) // 2 if duplicates else torch.arange(n)
    stats = [
        (torch.rand(n, k, generator=generator, dtype=torch.float64) * 0.8).sort(dim=1, descending=True).values
        for _ in range(2)
    ]
    return scores, ids[:, None] == ids[None, :], NeighborStats(*stats)


def closed_form(scores, positives, weights, gamma, epsilon, clamp=True):
    """AAAI eq. 8: dL/dS, the weights held constant, entry by entry; clamp: no reward below 0."""
    s, w, n = scores.tolist(), weights.tolist(), len(scores)
    term = lambda i, j: 0.0 if positives[i, j] else math.exp(gamma * w[i][j] * (s[i][j] - epsilon))  # noqa: E731
    gradient = torch.zeros(n, n, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            row = 1 + sum(term(i, m) for m in range(n))
            column = 1 + sum(term(m, j) for m in range(n))
            gradient[i, j] = w[i][j] * term(i, j) * (1 / row + 1 / column) / n
        reward = w[i][i] * s[i][i]
        if reward > 0 or not clamp:
            gradient[i, i] -= w[i][i] / (1 + reward) / n
    return gradient


def weights_of(scores, lists, a, b, e1, e2):
    """Eq. 6 by loops from lists of neighbours."""
    images, texts = lists
    crowd = lambda similarities, factor: sum(math.exp(factor * (s - e2)) for s in similarities)  # noqa: E731
    weights = torch.empty_like(scores)
    for i in range(len(scores)):
        for j in range(len(scores)):
            if i == j:
                wanted, others = math.exp(a * (scores[i, i] - e1)), crowd(images[i], a) + crowd(texts[i], a)
            else:
                wanted = math.exp(b * (scores[i, i] - e1)) + math.exp(b * (scores[j, j] - e1))
                others = crowd(images[i], b) + crowd(texts[j], b)
            weights[i, j] = 1 - wanted / (wanted + others)
    return weights


@looped("clamp", [True, False])
@looped("with_neighbors", [False, True])
@looped(("gamma", "epsilon"), [(30, 0.3), (60, 0.7), (100, 1.0), (2, 0.0)])
@looped("n", [1, 2, 7])
def test_rewards_and_gradients_are_eq_7_and_8(n, gamma, epsilon, with_neighbors, clamp):
    for seed in range(4):
        scores, positives, stats = batch(n, seed=seed)
        loss = HAL(gamma, epsilon, clamp=clamp)
        weights = loss.weights(scores, stats) if with_neighbors else torch.ones_like(scores)
        rewards = [weights[i, i].item() * scores[i, i].item() for i in range(n)]
        reward = sum(math.log1p(max(0, value) if clamp else value) for value in rewards) / n
        scores.requires_grad_()
        terms = loss(scores, positives, stats if with_neighbors else None)
        assert terms["positives"].item() == pytest.approx(reward)
        pairs = max(1, (~positives).sum().item())
        above = ((scores > loss.epsilon) & ~positives).sum().item() / pairs
        assert terms["above_epsilon"].item() == pytest.approx(above)
        if with_neighbors:
            assert terms["mean_weight"].item() == pytest.approx(weights[~positives].sum().item() / pairs)
        assert terms["loss"].item() == pytest.approx(terms["negatives"].item() - reward)
        (gradient,) = torch.autograd.grad(terms["loss"], scores)
        torch.testing.assert_close(gradient, closed_form(scores, positives, weights, gamma, epsilon, clamp), **EXACT)


@looped(("clamp", "above", "warnings"), [(True, 0, 1), (True, 1, 0), (False, 0, 0)])
def test_a_clamped_reward_without_a_pair_above_0_is_said_once(clamp, above, warnings, caplog):
    """Also where the scores fell below 0 later than at the first look."""
    scores = -batch(9)[0].abs() - 0.01
    loss, positives = HAL(clamp=clamp), torch.eye(9, dtype=torch.bool)
    for step in range(70):
        scores[3, 3] = above or float(step < 40)
        loss(scores, positives)  # a measurement
        loss(scores.clone().requires_grad_(), positives)
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * warnings
    caplog.clear()


def test_weights_are_eq_6_by_loops():
    scores, _, stats = batch(5)
    constants = 11.0, 7.0, 0.2, 0.1
    expected = weights_of(scores, [side.tolist() for side in stats[:2]], *constants)
    torch.testing.assert_close(HAL(30.0, 0.3, *constants).weights(scores, stats), expected, **EXACT)


def of_batch(scores, positives, k):
    """Each row's and each column's k largest negatives, by loops; a list may be short or empty."""
    n = len(scores)
    rows = [[scores[i, m].item() for m in range(n) if not positives[i, m]] for i in range(n)]
    columns = [[scores[m, i].item() for m in range(n) if not positives[m, i]] for i in range(n)]
    return [[sorted(line, reverse=True)[:k] for line in side] for side in (rows, columns)]


class TestStatisticsOfTheBatch:
    """`statistics="batch"`: the weights of eq. 6 from the batch's own negatives."""

    @looped("k", [None, 1, 3, 50])
    @looped("kind", ["distinct", "ties", "twins", "one image"])
    @looped("n", [1, 2, 7])
    def test_value_and_gradient_are_those_of_loops(self, n, kind, k):
        scores, positives, stats = batch(n, seed=n)
        if kind == "ties":  # none at 0, where clamp has two gradients
            scores = ((scores * 4).round() + 0.5) / 4
        if kind == "twins":  # the same image and the same caption twice, as pairs of two images
            scores = scores[torch.arange(n) // 2][:, torch.arange(n) // 2]
            positives = torch.eye(n, dtype=torch.bool)
        if kind == "one image":
            positives = torch.ones(n, n, dtype=torch.bool)
        constants = 11.0, 7.0, 0.2, 0.1
        expected = weights_of(scores, of_batch(scores, positives, k), *constants)
        loss = HAL(30.0, 0.3, *constants, neighbors_k=k, statistics="batch")
        scores.requires_grad_()
        value = loss(scores, positives, stats)["loss"]
        (gradient,) = torch.autograd.grad(value, scores)
        torch.testing.assert_close(gradient, closed_form(scores, positives, expected, 30.0, 0.3), **EXACT)
        terms = torch.where(positives, 0.0, torch.exp(30.0 * expected * (scores - 0.3)))
        negatives = (torch.log1p(terms.sum(1)) + torch.log1p(terms.sum(0))).mean() / 30
        reward = torch.log1p((expected * scores).diagonal().clamp(min=0)).mean()
        torch.testing.assert_close(value, negatives - reward, **EXACT)

    @looped("variant", ["paper", "release"])
    @looped("k", [None, 1, 4, 10])
    def test_a_bank_of_the_batch_itself_gives_the_same(self, k, variant):
        """Without the query's own image a bank of the batch's pairs holds the batch's negatives, 10 for each of 12."""
        generator = torch.Generator().manual_seed(0)
        images, texts = (normalize(torch.randn(12, 5, generator=generator), dim=1) for _ in range(2))
        ids, captions = torch.arange(12) // 2, torch.arange(12)
        bank = MemoryBank(10, "exact")
        bank.fill(images, texts, ids, captions)
        scores, positives = images @ texts.T, ids[:, None] == ids[None, :]
        stats = bank.query(images, texts, ids, captions)
        with_bank = HAL(neighbors_k=k, variant=variant)(scores, positives, stats)
        of_batch = HAL(neighbors_k=k, variant=variant, statistics="batch")(scores, positives)
        torch.testing.assert_close(of_batch, with_bank)
        assert not torch.allclose(of_batch["loss"], HAL(variant=variant)(scores, positives)["loss"])


@looped("dtype", [torch.bfloat16, torch.float16, torch.float32])
@looped("variant", ["paper", "release"])
@looped("statistics", [None, "bank", "batch"])
@looped("n", [1, 2, 16])
def test_gamma_1000_is_finite(n, statistics, variant, dtype):
    scores, positives, stats = batch(n)
    scores = scores.to(dtype).requires_grad_()
    stats = NeighborStats(*(side.to(dtype) for side in stats[:2])) if statistics == "bank" else None
    terms = HAL(1000.0, 0.1, variant=variant, statistics=statistics or "bank")(scores, positives, stats)
    terms["loss"].backward()
    assert terms["loss"].dtype == torch.float32
    assert all(torch.isfinite(term) for term in terms.values())
    assert torch.isfinite(scores.grad).all()
    assert (scores.grad != 0).any() or n < 16


def test_the_release_takes_at_most_a_batch_of_neighbours():
    scores, _, stats = batch(4, k=9)
    first = NeighborStats(*(side[:, :4] for side in stats[:2]))
    release, shrunk = (HAL(variant="release").weights(scores, these) for these in (stats, first))
    assert torch.equal(release, shrunk)
    assert not torch.equal(HAL().weights(scores, stats), HAL().weights(scores, first))
