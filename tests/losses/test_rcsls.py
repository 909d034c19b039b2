import torch
from loop_cases import KINDS, SIZES, equals_loops, sides
from looped import looped

from vsehub.criteria import CSLS
from vsehub.losses import RCSLS


def oracle(k):
    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            largest = sorted([scores[i, i], *(scores[at] for at in negatives)], key=torch.Tensor.item, reverse=True)[:k]
            total = total + sum(largest) / len(largest) - scores[i, i]
        return total / len(scores)

    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
@looped("k", [1, 3, 10])
def test_equals_loops(k, n, kind):
    equals_loops(RCSLS(k), oracle(k), n, kind)


def test_is_minus_the_csls_score_of_the_pairs():
    scores = torch.rand(9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64) - 0.5
    corrected = CSLS(k=4).rescore(scores).diagonal().mean()
    torch.testing.assert_close(RCSLS(4)(scores, torch.eye(9, dtype=torch.bool))["loss"], -corrected)
