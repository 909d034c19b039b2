import torch
from loop_cases import KINDS, SIZES, equals_loops, sides
from looped import looped

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


def test_large_exponents_stay_finite():
    scores = (-torch.eye(3)).requires_grad_()
    value = MultiSimilarity(beta=1e4)(scores, torch.eye(3, dtype=torch.bool))["loss"]
    value.backward()
    assert value.isfinite()
    assert scores.grad.isfinite().all()
