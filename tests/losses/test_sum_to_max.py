import torch
from loop_cases import KINDS, SIZES, equals_loops, sides
from looped import looped

from vsehub.losses import SumToMax


def oracle(aggregate, margin):
    def loss(scores, positives):
        total = scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            total = total + aggregate(
                [total * 0, *(torch.relu(margin - scores[i, i] + scores[at]) for at in negatives)]
            )
        return total

    return loss


def at_epoch(epoch):
    loss = SumToMax(0.3, warmup_epochs=2)
    loss.set_epoch(epoch)
    return loss


@looped("kind", KINDS)
@looped("n", SIZES)
def test_equals_loops(n, kind):
    for loss in (SumToMax(0.3), at_epoch(0), at_epoch(1)):
        equals_loops(loss, oracle(sum, 0.3), n, kind)
    for loss in (at_epoch(2), at_epoch(29)):
        equals_loops(loss, oracle(max, 0.3), n, kind)


def test_a_loss_resumed_at_an_epoch_has_no_other_state():
    walked = SumToMax(0.3, warmup_epochs=2)
    for epoch in (0, 1, 2, 3):
        walked.set_epoch(epoch)
    assert walked.epoch == at_epoch(3).epoch
    assert walked.state_dict() == {}
    scores, positives = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)), torch.eye(6, dtype=torch.bool)
    late = walked(scores, positives)["loss"]
    walked.set_epoch(1)
    assert torch.equal(late, at_epoch(3)(scores, positives)["loss"])
    assert torch.equal(walked(scores, positives)["loss"], at_epoch(0)(scores, positives)["loss"])
