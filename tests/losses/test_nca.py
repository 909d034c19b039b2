import pytest
import torch
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.losses import HAL, NCA


def oracle(gamma):
    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            pair = torch.exp(gamma * scores[i, i])
            total = total - torch.log(pair / (pair + sum(torch.exp(gamma * scores[at]) for at in negatives))) / gamma
        return total / len(scores)

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped("gamma", [30.0, 1.0])
def test_equals_loops(gamma, n, kind):
    equals_loops(NCA(gamma), oracle(gamma), n, kind)


def test_is_hals_negative_term_where_all_pairs_score_epsilon():
    scores, positives = batch(12, "distinct")
    scores = scores.diagonal_scatter(torch.full((12,), 0.3, dtype=torch.float64))
    negatives = HAL(30.0, 0.3)(scores, positives)["negatives"]
    torch.testing.assert_close(NCA(30.0)(scores, positives)["loss"], negatives, **EXACT)


def test_gamma_1000_in_half_precision_is_finite():
    scores = (-torch.eye(4)).half().requires_grad_()
    value = NCA(1000.0)(scores, torch.eye(4, dtype=torch.bool))["loss"]
    value.backward()
    assert value.item() == pytest.approx(2.0, abs=0.01)
    assert scores.grad.isfinite().all()
