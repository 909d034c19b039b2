import math

import pytest
import torch
from loop_cases import KINDS, SIZES, batch, sides
from looped import looped

from vsehub.losses import SigLIP


def oracle(scale, bias):
    def loss(scores, positives):
        cost = lambda sign, at: torch.log1p(torch.exp(-sign * (scale * scores[at] + bias)))  # noqa: E731
        total = sum(cost(1, (i, i)) for i in range(len(scores)))
        for i, negatives in sides(len(scores), positives):
            total = total + sum(cost(-1, at) for at in negatives if at[0] == i)
        return total / len(scores)

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("scale", "bias"), [(10, -10), (3, 0.5)])
def test_equals_loops(scale, bias, n, kind):
    for seed in range(4):
        scores, positives = batch(n, kind, seed)
        scores.requires_grad_()
        value, expected = (one(scores, positives) for one in (SigLIP(scale, bias), oracle(scale, bias)))
        # Scale and bias are float32 parameters.
        torch.testing.assert_close(value["loss"], expected, rtol=1e-6, atol=1e-9)
        ours, theirs = (torch.autograd.grad(one, scores)[0] for one in (value["loss"], expected))
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-9)


def test_learns_its_scale_and_bias():
    scores, positives = batch(7, "distinct")
    loss = SigLIP()
    terms = loss(scores, positives)
    gradients = torch.autograd.grad(terms["loss"], (loss.log_scale, loss.bias))
    assert all(one.item() != 0 for one in gradients)
    assert terms["scale"].item() == pytest.approx(10.0, rel=1e-6)
    assert terms["bias"].item() == -10.0
    assert loss.log_scale.item() == pytest.approx(math.log(10.0))
    assert not any(one.requires_grad for one in SigLIP(learnable=False).parameters())


def test_far_logits_stay_finite():
    scores = torch.tensor([[-1.0, 1.0], [1.0, -1.0]], requires_grad=True)
    value = SigLIP(1e4, 0.0)(scores, torch.eye(2, dtype=torch.bool))["loss"]
    value.backward()
    assert value.item() == pytest.approx(2e4)
    assert scores.grad.isfinite().all()
