import pytest
import torch
from golden_arrays import CASES, golden
from loop_cases import EXACT, KINDS, SIZES, batch, equals_loops, sides
from looped import looped

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


def test_a_row_with_one_negative_leaves_no_neighbour_beside_the_pair():
    """Three pairs, two of one image: of two or fewer entries that count, the mean is over those that are left."""
    scores = torch.tensor([[0.5, 0.9, 0.2], [0.8, 0.4, -0.3], [0.1, 0.7, 0.6]], dtype=torch.float64)
    ids = torch.tensor([0, 0, 1])
    rescaled = Rescaled().rescaled(scores, ids[:, None] == ids[None, :])
    # The pair's row is left with S_02, its column with S_20; the negative's row with S_00, its column with S_22, S_12.
    assert rescaled[0, 0].item() == pytest.approx(0.5 * torch.tensor(0.2 + 0.1).exp().item())
    assert rescaled[0, 2].item() == pytest.approx(0.2 * torch.tensor(0.5 + (0.6 - 0.3) / 2).exp().item())


def test_the_gradient_through_the_factor_is_right():
    scores, positives = batch(5, "distinct")
    scores.requires_grad_()
    assert torch.autograd.gradcheck(lambda s: Rescaled(detach=False).rescaled(s, positives), scores)
    held, whole = (
        torch.autograd.grad(Rescaled(detach=detach)(scores, positives)["loss"], scores)[0] for detach in (True, False)
    )
    assert not torch.allclose(held, whole)
