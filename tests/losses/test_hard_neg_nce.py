import torch
from loop_cases import KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.losses import HardNegNCE


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
