import pytest
import torch
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.checks import InputError
from vsehub.losses import InfoNCE, NTXent


def oracle(temperature, margin):
    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            pair = torch.exp((scores[i, i] - margin) / temperature)
            total = total - torch.log(pair / (pair + sum(torch.exp(scores[at] / temperature) for at in negatives)))
        return total / len(scores) / 2

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("temperature", "margin"), [(0.07, 0.3), (0.5, 0.0)])
def test_equals_loops(temperature, margin, n, kind):
    equals_loops(NTXent(temperature, margin), oracle(temperature, margin), n, kind)


def test_without_margin_it_is_infonce():
    scores, positives = batch(12, "distinct")
    theirs = InfoNCE(0.07, learnable=False)(scores, positives)["loss"]
    torch.testing.assert_close(NTXent(0.07, 0.0)(scores, positives)["loss"], theirs, rtol=1e-6, atol=1e-9)


def test_a_margin_is_a_lower_pair():
    scores, positives = batch(7, "distinct")
    lowered = scores - 0.2 * torch.eye(7, dtype=torch.float64)
    torch.testing.assert_close(NTXent(0.1, 0.2)(scores, positives), NTXent(0.1, 0.0)(lowered, positives), **EXACT)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: NTXent(temperature=0), "temperature is 0; expected a number above 0"),
        (lambda: NTXent(margin=-0.1), "margin is -0.1; expected a number of at least 0"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
