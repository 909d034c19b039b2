import pytest
import torch
from golden_arrays import CASES, golden
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

from vsehub.checks import InputError
from vsehub.losses import Rescaled


def mean_of_largest(entries, k):
    largest = sorted(entries, key=torch.Tensor.item, reverse=True)[:k]
    return sum(largest) / len(largest) if largest else 0.0


def rescaled_by_loops(scores, positives, k, detach):
    """EMNLP eq. 4 entry by entry, T without t and I without i, other positives never looked at."""
    n, factors = len(scores), scores.detach() if detach else scores
    counts = lambda i, t: i == t or not positives[i, t]  # noqa: E731
    answer = {}
    for i in range(n):
        for t in range(n):
            row = [factors[i, u] for u in range(n) if u != t and counts(i, u)]
            column = [factors[j, t] for j in range(n) if j != i and counts(j, t)]
            density = torch.as_tensor(mean_of_largest(row, k) + mean_of_largest(column, k), dtype=scores.dtype)
            answer[i, t] = scores[i, t] * density.exp()
    return answer


def oracle(aggregate, k, margin, detach):
    def loss(scores, positives):
        rescaled, total = rescaled_by_loops(scores, positives, k, detach), scores.sum() * 0
        for i, negatives in sides(len(scores), positives):
            costs = [torch.relu(margin - rescaled[i, i] + rescaled[at]) for at in negatives]
            total = total + (sum(costs) if aggregate == "sum" else max(costs, default=0.0))
        return total

    return loss


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    arrays = golden(case)
    scores = arrays["image"] @ arrays["caption"].T
    rescaled = Rescaled(k=3).rescaled(scores, torch.eye(len(scores), dtype=torch.bool))
    torch.testing.assert_close(rescaled, arrays["emnlp_scores_3"], **EXACT)


@looped("detach", [True, False])
@looped("kind", KINDS)
@looped("n", SIZES)
@looped(("aggregate", "k"), [("sum", 3), ("sum", 1), ("sum", 50), ("max", 3), ("max", 2)])
def test_equals_loops(aggregate, k, n, kind, detach):
    equals_loops(Rescaled(aggregate, k, 0.3, detach), oracle(aggregate, k, 0.3, detach), n, kind)


@looped("kind", KINDS)
@looped("n", SIZES)
def test_every_entry_equals_loops(n, kind):
    """Other positives of an image too, which the loss never looks at."""
    scores, positives = batch(n, kind)
    for k in (1, 3, n):
        expected = torch.stack(list(rescaled_by_loops(scores, positives, k, True).values())).view(n, n)
        torch.testing.assert_close(Rescaled(k=k).rescaled(scores, positives), expected, **EXACT)


def test_a_row_with_one_negative_leaves_no_neighbour_beside_the_pair():
    """Three pairs, two of one image: of two or fewer entries that count, the mean is over those that are left."""
    scores = torch.tensor([[0.5, 0.9, 0.2], [0.8, 0.4, -0.3], [0.1, 0.7, 0.6]], dtype=torch.float64)
    ids = torch.tensor([0, 0, 1])
    rescaled = Rescaled().rescaled(scores, ids[:, None] == ids[None, :])
    # The pair's row is left with S_02, its column with S_20; the negative's row with S_00, its column with S_22, S_12.
    assert rescaled[0, 0].item() == pytest.approx(0.5 * torch.tensor(0.2 + 0.1).exp().item())
    assert rescaled[0, 2].item() == pytest.approx(0.2 * torch.tensor(0.5 + (0.6 - 0.3) / 2).exp().item())


def test_one_pair_is_left_as_it_is():
    scores = torch.tensor([[-0.7]], dtype=torch.float64)
    assert torch.equal(Rescaled().rescaled(scores, torch.ones(1, 1, dtype=torch.bool)), scores)


def test_the_gradient_through_the_factor_is_right():
    scores, positives = batch(5, "distinct")
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: Rescaled(detach=False).rescaled(s, positives), scores)
    held, whole = (
        torch.autograd.grad(Rescaled(detach=detach)(scores, positives)["loss"], scores)[0] for detach in (True, False)
    )
    assert not torch.allclose(held, whole)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Rescaled("mean"), "aggregate is 'mean'; choose one of 'sum', 'max'"),
        (lambda: Rescaled(k=0), "k is 0; expected a whole number above 0"),
        (lambda: Rescaled(margin=0), "margin is 0; expected a number above 0"),
        (lambda: Rescaled().rescaled(torch.zeros(2, 3), torch.ones(2, 3).bool()), r"scores has shape \(2, 3\)"),
    ],
)
def test_bad_input(build, message):
    with pytest.raises(InputError, match=message):
        build()
