import pytest
import torch
from golden_arrays import CASES, golden
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import CSLS, InvertedSoftmax, NearestNeighbor, QBNorm
from vsehub.metrics import k_occurrences, skewness

EXACT = {"rtol": 1e-9, "atol": 1e-12}
ITEM_BIASES = [NearestNeighbor(), InvertedSoftmax(30.0), InvertedSoftmax(1000.0), CSLS(10), CSLS(1)]


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    arrays = golden(case)
    i2t = arrays["gallery_image"] @ arrays["gallery_caption"].T
    for direction, scores in (("i2t", i2t), ("t2i", i2t.T)):
        torch.testing.assert_close(InvertedSoftmax(30.0).rescore(scores), arrays[f"is_{direction}"], **EXACT)
        torch.testing.assert_close(CSLS(10).rescore(scores), arrays[f"csls_{direction}"], **EXACT)
    torch.testing.assert_close(InvertedSoftmax(30.0).rescore(i2t, i2t), arrays["is_all_i2t"], **EXACT)


def test_inverted_softmax_where_one_query_owns_an_item():
    """The others' sum is e^-2000 of the whole: a difference of sums has no digit of it left."""
    scores = torch.tensor([[1.0, 0.2], [-1.0, 0.3], [-1.0, 0.1]])
    logits = 1000.0 * scores.double()
    naive = torch.stack(
        [logits[q] - torch.cat([logits[:q], logits[q + 1 :]]).logsumexp(dim=0) for q in range(len(scores))]
    )
    assert torch.isfinite(InvertedSoftmax(1000.0).rescore(scores)).all()
    torch.testing.assert_close(InvertedSoftmax(1000.0).rescore(scores.double()), naive, **EXACT)


@pytest.mark.parametrize("k", [1, 3])
def test_transductive_qb_norm_is_the_inverted_softmax(k):
    """Every query is its own reference, so that its nearest item is a hub of the bank; of others not every one is."""
    generator = torch.Generator().manual_seed(1)
    scores, other = (torch.rand(23, 40, generator=generator, dtype=torch.float64) for _ in range(2))
    scores[:, 7] = scores[:, 3]  # ties
    expected = QBNorm.transductive_equal(beta=20.0)
    orders = [one.rescore(scores).argsort(descending=True, stable=True) for one in (QBNorm(20.0, k), expected)]
    bias = expected.bias(scores)
    torch.testing.assert_close(QBNorm(20.0, k).rescore(scores), scores - bias / 20.0, **EXACT)
    assert torch.equal(*orders)
    assert not torch.equal(QBNorm(20.0, k).rescore(scores, other), scores - expected.bias(other) / 20.0)


@pytest.mark.parametrize("criterion", ITEM_BIASES[1:], ids=lambda c: f"{type(c).__name__}-{c.scale}")
def test_hubs_lose(criterion):
    """Items drawn to the queries' mean are hubs; the correction must give their places to others."""
    generator = torch.Generator().manual_seed(3)
    query = torch.randn(400, 40, generator=generator) + 0.4
    item = torch.randn(300, 40, generator=generator)
    item[:5] += 0.8
    query, item = (torch.nn.functional.normalize(side, dim=1) for side in (query, item))
    scores = query @ item.T
    before, after = (skewness(k_occurrences(matrix, (10,))[10]) for matrix in (scores, criterion.rescore(scores)))
    assert after < 0.6 * before


@looped(
    ("call", "message"),
    [
        (lambda: CSLS(0), "k is 0; expected a whole number above 0"),
        (lambda: InvertedSoftmax(-1.0), "beta is -1.0; expected a number above 0"),
        (lambda: CSLS(3).rescore(torch.zeros(3)), r"scores has shape \(3,\); expected a matrix"),
        (lambda: CSLS(3).rescore(torch.zeros(2, 3), torch.zeros(2, 4)), r"reference_scores has shape \(2, 4\)"),
        (lambda: CSLS(3).rescore(torch.zeros(2, 3), torch.zeros(0, 3)), "reference_scores is empty"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
