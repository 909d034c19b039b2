import pytest
import torch
from loop_cases import KINDS, SIZES, equals_loops, sides
from looped import looped

from vsehub.checks import InputError
from vsehub.losses import MultiSimilarity


def oracle(alpha, beta, base, epsilon):
    """Mining and weighting anchor by anchor, as published; exact powers of e, so for scores of moderate size."""

    def loss(scores, positives):
        total = scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            pair, against = scores[i, i], [scores[at] for at in negatives]
            if epsilon is not None:
                against = [one for one in against if one > pair - epsilon]
                if not against:
                    continue
            total = total + torch.log1p(torch.exp(-alpha * (pair - base))) / alpha
            total = total + torch.log1p(sum((torch.exp(beta * (one - base)) for one in against), pair * 0)) / beta
        return total / len(scores)

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped("epsilon", [0.1, 0.0, None])
@looped(("alpha", "beta", "base"), [(2, 50, 0.5), (5, 7, -0.2)])
def test_equals_loops(alpha, beta, base, epsilon, n, kind):
    equals_loops(MultiSimilarity(alpha, beta, base, epsilon), oracle(alpha, beta, base, epsilon), n, kind)


def test_nothing_mined_is_zero_with_gradient_zero():
    scores = (torch.eye(5) - 0.5).requires_grad_()
    value = MultiSimilarity()(scores, torch.eye(5, dtype=torch.bool))["loss"]
    value.backward()
    assert value.item() == 0.0
    assert torch.equal(scores.grad, torch.zeros(5, 5))


def test_mining_takes_an_easy_negative_out():
    scores = torch.tensor([[0.5, 0.39], [0.41, 0.5]], dtype=torch.float64, requires_grad=True)
    MultiSimilarity(epsilon=0.1)(scores, torch.eye(2, dtype=torch.bool))["loss"].backward()
    assert scores.grad[0, 1] == 0
    assert scores.grad[1, 0] > 0


def test_large_exponents_stay_finite():
    scores = (-torch.eye(3)).requires_grad_()
    value = MultiSimilarity(beta=1e4)(scores, torch.eye(3, dtype=torch.bool))["loss"]
    value.backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: MultiSimilarity(alpha=0), "alpha is 0; expected a number above 0"),
        (lambda: MultiSimilarity(beta=-1), "beta is -1; expected a number above 0"),
        (lambda: MultiSimilarity(epsilon=-0.1), "epsilon is -0.1; expected a number of at least 0"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
