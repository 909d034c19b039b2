import pytest
import torch
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.checks import InputError
from vsehub.losses import HardNegNCE, NTXent


def oracle(temperature, beta):
    """Each negative's weight, then their sum, entry by entry."""

    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            pair = torch.exp(scores[i, i] / temperature)
            norm = sum(torch.exp(beta * scores[at] / temperature) for at in negatives)
            weigh = lambda at: len(negatives) * torch.exp(beta * scores[at] / temperature) / norm  # noqa: B023, E731
            total = total - torch.log(
                pair / (pair + sum(weigh(at) * torch.exp(scores[at] / temperature) for at in negatives))
            )
        return total / len(scores) / 2

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("temperature", "beta"), [(0.07, 0.25), (0.5, 2.0), (0.2, 0.0)])
def test_equals_loops(temperature, beta, n, kind):
    equals_loops(HardNegNCE(temperature, beta), oracle(temperature, beta), n, kind)


@looped("n", [1, 2, 5])
def test_gradcheck(n):
    scores, positives = batch(n, "distinct")
    loss = HardNegNCE(0.3, 0.7)
    assert torch.autograd.gradcheck(lambda s: loss(s, positives)["loss"], scores.requires_grad_())


def test_without_weights_it_is_cross_entropy():
    scores, positives = batch(12, "distinct")
    theirs = NTXent(0.1, margin=0.0)(scores, positives)
    torch.testing.assert_close(HardNegNCE(0.1, beta=0.0)(scores, positives), theirs, **EXACT)


def test_a_large_beta_is_the_hardest_negative_times_their_number():
    scores, positives = batch(9, "pairs")
    value = HardNegNCE(0.5, beta=1e4)(scores, positives)["loss"]
    negatives = scores.masked_fill(positives, -torch.inf)
    hardest = ((negatives.amax(dim=d) - scores.diagonal()) / 0.5 + torch.log(torch.tensor(8.0)) for d in (0, 1))
    expected = sum(torch.nn.functional.softplus(one).mean() for one in hardest) / 2
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-4)


@looped("dtype", [torch.bfloat16, torch.float16, torch.float32])
@looped("scale", [50.0, 1e4])
@looped("n", [1, 2, 16])
def test_large_scores_are_finite(n, scale, dtype):
    scores, positives = batch(n, "distinct")
    scores = (scale * scores).to(dtype).requires_grad_()
    value = HardNegNCE()(scores, positives)["loss"]
    (gradient,) = torch.autograd.grad(value, scores)
    assert torch.isfinite(value)
    assert torch.isfinite(gradient).all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: HardNegNCE(temperature=0), "temperature is 0; expected a number above 0"),
        (lambda: HardNegNCE(beta=-0.1), "beta is -0.1; expected a number of at least 0"),
        (lambda: HardNegNCE(beta=float("nan")), "beta is nan; expected a number of at least 0"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
