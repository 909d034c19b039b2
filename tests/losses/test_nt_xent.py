import torch
from loop_cases import KINDS, SIZES, equals_loops, sides
from looped import looped

from vsehub.losses import NTXent


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
