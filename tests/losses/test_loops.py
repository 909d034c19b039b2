"""Losses against their definitions, entry by entry, on nasty batches; and what is true of single ones."""

import itertools

import pytest
import torch
from golden_arrays import CASES, golden
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.losses import (
    NCA,
    RCSLS,
    InfoNCE,
    KNNMargin,
    MaxMargin,
    MultiSimilarity,
    NTXent,
    Rescaled,
    SigLIP,
    SumMargin,
    SumToMax,
)


def largest(entries, k):
    return sorted(entries, key=torch.Tensor.item, reverse=True)[:k]


def hinge(margin, k=None):
    def loss(scores, positives):
        total = scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            total = total + sum(largest([torch.relu(margin - scores[i, i] + scores[at]) for at in negatives], k))
        return total

    return loss


def softmax(scale, margin, weight):
    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            pair = torch.exp(scale * (scores[i, i] - margin))
            total = total - torch.log(pair / (pair + sum(torch.exp(scale * scores[at]) for at in negatives)))
        return weight * total / len(scores)

    return loss


def rcsls(k):
    def loss(scores, positives):
        total = 0.0
        for i, negatives in sides(len(scores), positives):
            nearest = largest([scores[i, i], *(scores[at] for at in negatives)], k)
            total = total + sum(nearest) / len(nearest) - scores[i, i]
        return total / len(scores)

    return loss


def multi_similarity(alpha, beta, base, epsilon):
    """Mining and weighting anchor by anchor, as published; exact powers of e, so for scores of moderate size."""

    def loss(scores, positives):
        total = scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            pair, against = scores[i, i], [scores[at] for at in negatives]
            if epsilon is not None:
                against = [score for score in against if score > pair - epsilon]
                if not against:
                    continue
            total = total + torch.log1p(torch.exp(-alpha * (pair - base))) / alpha
            total = total + torch.log1p(sum((torch.exp(beta * (score - base)) for score in against), pair * 0)) / beta
        return total / len(scores)

    return loss


def siglip(scale, bias):
    def loss(scores, positives):
        cost = lambda sign, at: torch.log1p(torch.exp(-sign * (scale * scores[at] + bias)))  # noqa: E731
        total = sum(cost(1, (i, i)) for i in range(len(scores)))
        for i, negatives in sides(len(scores), positives):
            total = total + sum(cost(-1, at) for at in negatives if at[0] == i)
        return total / len(scores)

    return loss


def rescaled_by_loops(scores, positives, k, detach):
    """EMNLP eq. 4 entry by entry, T without t and I without i, other positives never looked at."""
    n, factors = len(scores), scores.detach() if detach else scores
    counts = lambda i, t: i == t or not positives[i, t]  # noqa: E731
    mean = lambda values: sum(values) / len(values) if values else 0.0  # noqa: E731
    answer = {}
    for i in range(n):
        for t in range(n):
            row = [factors[i, u] for u in range(n) if u != t and counts(i, u)]
            column = [factors[j, t] for j in range(n) if j != i and counts(j, t)]
            density = torch.as_tensor(mean(largest(row, k)) + mean(largest(column, k)), dtype=scores.dtype)
            answer[i, t] = scores[i, t] * density.exp()
    return answer


def rescaled(aggregate, k, detach):
    def loss(scores, positives):
        answer, total = rescaled_by_loops(scores, positives, k, detach), scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            costs = [torch.relu(0.3 - answer[i, i] + answer[at]) for at in negatives]
            total = total + sum(costs if aggregate == "sum" else largest(costs, 1))
        return total

    return loss


def at_epoch(epoch):
    loss = SumToMax(0.3, warmup_epochs=2)
    loss.set_epoch(epoch)
    return loss


PAIRS = [
    (SumMargin(0.3), hinge(0.3)),
    (MaxMargin(0.3), hinge(0.3, 1)),
    *((KNNMargin(0.3, k), hinge(0.3, k)) for k in (1, 4)),
    *((loss, hinge(0.3)) for loss in (SumToMax(0.3), at_epoch(1))),
    (at_epoch(2), hinge(0.3, 1)),
    *((NCA(gamma), softmax(gamma, 0.0, 1 / gamma)) for gamma in (30.0, 1.0)),
    *((NTXent(t, m), softmax(1 / t, m, 0.5)) for t, m in ((0.07, 0.3), (0.5, 0.0))),
    *((RCSLS(k), rcsls(k)) for k in (1, 3, 10)),
    *(
        (MultiSimilarity(*settings, epsilon), multi_similarity(*settings, epsilon))
        for settings in ((2, 50, 0.5), (5, 7, -0.2))
        for epsilon in (0.1, 0.0, None)
    ),
]
SINGLE = {"rtol": 1e-5, "atol": 1e-9}
# These have float32 parameters.
LEARNT = [
    (InfoNCE(0.2), softmax(5.0, 0.0, 0.5)),
    *((SigLIP(*settings), siglip(*settings)) for settings in ((10, -10), (3, 0.5))),
]


@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("loss", "oracle", "within"), [*((*pair, EXACT) for pair in PAIRS), *((*pair, SINGLE) for pair in LEARNT)])
def test_equals_loops(loss, oracle, within, n, kind):
    equals_loops(loss, oracle, n, kind, within)


@looped("detach", [True, False])
@looped("kind", KINDS)
@looped("n", [1, 2, 7])
@looped(("aggregate", "k"), [("sum", 3), ("sum", 1), ("sum", 50), ("max", 2)])
def test_rescaled_equals_loops(aggregate, k, n, kind, detach):
    equals_loops(Rescaled(aggregate, k, 0.3, detach), rescaled(aggregate, k, detach), n, kind)


@pytest.mark.parametrize("case", CASES)
def test_golden_rescaled(case):
    arrays = golden(case)
    scores = arrays["image"] @ arrays["caption"].T
    rescaled = Rescaled(k=3).rescaled(scores, torch.eye(len(scores), dtype=torch.bool))
    torch.testing.assert_close(rescaled, arrays["emnlp_scores_3"], **EXACT)


def value_and_gradient(loss, scores):
    scores = scores.clone().requires_grad_()
    value = loss(scores, torch.eye(len(scores), dtype=torch.bool))["loss"]
    return value, torch.autograd.grad(value, scores)[0]


@looped(
    ("loss", "scores", "wanted"),
    [
        (MultiSimilarity(), torch.eye(5) - 0.5, 0.0),  # nothing is mined
        (MultiSimilarity(beta=1e4), -torch.eye(3), None),
        (NCA(1000.0), -torch.eye(4).half(), 2.0),
        (SigLIP(1e4, 0.0), 1 - 2 * torch.eye(2), 2e4),
    ],
)
def test_far_scores_stay_finite(loss, scores, wanted):
    value, gradient = value_and_gradient(loss, scores)
    assert value.isfinite()
    assert gradient.isfinite().all()
    assert wanted is None or value.item() == pytest.approx(wanted, rel=0.01)
    assert wanted != 0 or not gradient.any()


@looped(("loss", "names"), [(InfoNCE(0.07), ["log_scale"]), (SigLIP(), ["log_scale", "bias"])])
def test_scale_and_bias_are_learnt_where_asked(loss, names):
    assert [name for name, _ in loss.named_parameters()] == names
    value = loss(*batch(7, "distinct"))["loss"]
    assert all(gradient.item() != 0 for gradient in torch.autograd.grad(value, [*loss.parameters()]))
    assert not any(parameter.requires_grad for parameter in type(loss)(learnable=False).parameters())


def test_infonce_comes_back_from_its_bound():
    """The best negatives score above the pairs, so that a lower scale is a lower loss."""
    scores, positives = -torch.eye(4), torch.eye(4, dtype=torch.bool)
    loss = InfoNCE(1e-3, max_scale=50)
    optimizer = torch.optim.SGD(loss.parameters(), lr=1e-3)
    scales = []
    for _ in range(20):
        optimizer.zero_grad()
        terms = loss(scores, positives)
        terms["loss"].backward()
        optimizer.step()
        scales.append(1 / terms["temperature"].item())
    assert scales[0] == pytest.approx(50)
    assert scales[-1] < 49
    assert all(later < earlier for earlier, later in itertools.pairwise(scales))


def test_a_row_with_one_negative_leaves_no_neighbour_beside_the_pair():
    """Three pairs, two of one image: of two or fewer entries that count, the mean is over those that are left."""
    scores = torch.tensor([[0.5, 0.9, 0.2], [0.8, 0.4, -0.3], [0.1, 0.7, 0.6]], dtype=torch.float64)
    ids = torch.tensor([0, 0, 1])
    rescaled = Rescaled().rescaled(scores, ids[:, None] == ids[None, :])
    # The pair's row is left with S_02, its column with S_20; the negative's row with S_00, its column with S_22, S_12.
    assert rescaled[0, 0].item() == pytest.approx(0.5 * torch.tensor(0.2 + 0.1).exp().item())
    assert rescaled[0, 2].item() == pytest.approx(0.2 * torch.tensor(0.5 + (0.6 - 0.3) / 2).exp().item())
