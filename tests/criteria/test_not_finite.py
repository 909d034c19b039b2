"""NaN, infinity and numbers beyond their type end in an InputError; settings are finite numbers; edges are defined."""

import logging
import math

import pytest
import torch
from criteria.test_formulas import FORMULAS
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import (
    CSLS,
    NNN,
    Assignment,
    Chain,
    DistributionNormalization,
    DualInvertedSoftmax,
    DualSoftmax,
    InvertedSoftmax,
    LocalScaling,
    NearestNeighbor,
    QBNorm,
    RelaxedGreedyMatching,
    Sinkhorn,
)

CRITERIA = [NearestNeighbor(), *(criterion for criterion, _ in FORMULAS)]
MATCHING = [RelaxedGreedyMatching(), Assignment(), Chain([CSLS(), RelaxedGreedyMatching()])]
BAD = (math.nan, math.inf, -math.inf)


def unit(rows, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(rows, 5, generator=generator), dim=1)


@looped("criterion", CRITERIA)
@looped("bad", BAD)
def test_one_such_score_is_refused(criterion, bad):
    scores, spoilt = torch.rand(6, 8), torch.rand(6, 8)
    spoilt[2, 3] = bad
    for given in ((spoilt, None), (spoilt, scores), (scores, spoilt)):
        with pytest.raises(InputError, match="are NaN or infinite"):
            criterion.rescore(*given)
    with pytest.raises(InputError, match="are NaN or infinite"):
        criterion.rescore(spoilt.double())


@looped("criterion", [*CRITERIA, *MATCHING])
@looped("bad", [math.nan, math.inf])
def test_one_such_vector_is_refused(criterion, bad):
    """Wherever it lies; only items whose product is -inf may stay behind what is found."""
    whole = (unit(6, 0), unit(8, 1), unit(7, 2))
    inductive = not isinstance(criterion, tuple(type(criterion) for criterion in MATCHING))
    for side in (0, 1, 2) if inductive and criterion.needs_reference else (0, 1):
        given = [vectors.clone() for vectors in whole]
        given[side][4, 1] = bad
        with pytest.raises(InputError, match="NaN or inf"):
            criterion.search(*(given if inductive else given[:2]), k=8)


@looped("criterion", [*CRITERIA, *MATCHING])
def test_products_beyond_the_type_are_refused(criterion):
    queries, items = 1e20 * unit(6, 0), 1e20 * unit(8, 1)
    with pytest.raises(InputError, match="NaN or inf"):
        criterion.search(queries, items, k=8)


def test_a_nan_does_not_hide_above_the_kth():
    reference = torch.rand(6, 4)
    reference[0, 0] = math.nan
    with pytest.raises(InputError, match="scores are NaN or infinite"):
        LocalScaling(3).item_terms(reference)


@looped("criterion", CRITERIA)
def test_empty_and_whole_numbers_are_refused(criterion):
    for scores in (torch.zeros(0, 4), torch.zeros(3, 0)):
        with pytest.raises(InputError, match="expected at least one query and one item"):
            criterion.rescore(scores)
    with pytest.raises(InputError, match=r"scores holds torch\.int64 numbers"):
        criterion.rescore(torch.ones(3, 4, dtype=torch.int64))
    for k in (1.0, "3", None, True):
        with pytest.raises(InputError, match=r"k is .*; expected a whole number"):
            criterion.search(unit(3, 0), unit(4, 1), k=k)


@looped("value", [math.inf, math.nan, 0, -1.0, "30", None, True, [1]])
@looped(
    ("name", "build"),
    [
        ("beta", InvertedSoftmax),
        ("beta", DualSoftmax),
        ("beta", QBNorm),
        ("weight", lambda value: NNN(4, value)),
        ("weight", DistributionNormalization),
        ("temperature", Sinkhorn),
        ("beta1", DualInvertedSoftmax),
        ("beta2", lambda value: DualInvertedSoftmax(50.0, value)),
        ("limit_seconds", lambda value: Assignment(1, value)),
        ("relaxation", RelaxedGreedyMatching),
    ],
)
def test_settings_are_finite_numbers_above_zero(name, build, value):
    with pytest.raises(InputError, match=rf"{name} is .*; expected a number above 0"):
        build(value)


def test_a_single_query_has_no_others_to_share_with():
    """Its bias is its own score: all items are equal, dense, streaming but for rounding, and matched."""
    query, items = unit(1, 0), unit(5, 1)
    criterion = InvertedSoftmax(30.0)
    assert torch.equal(criterion.rescore(query @ items.T), torch.zeros(1, 5))
    values, positions = criterion.search(query, items, k=5)
    assert sorted(positions[0].tolist()) == [0, 1, 2, 3, 4]
    assert values.abs().max() < 1e-4
    assert Chain([criterion, RelaxedGreedyMatching()]).match(query @ items.T, 2).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("scale", [1.0, 1e6, 1e30])
def test_two_queries_that_want_an_item_alike(scale):
    """At a large scale log 2 is lost beside the logits; neither query's sum of others is empty for that."""
    scores = scale * torch.tensor([[1.0, 0.5], [1.0, -0.5], [-1.0, 0.5]])
    answer = InvertedSoftmax(30.0).rescore(scores)
    assert torch.isfinite(answer).all()
    assert answer[0, 0] == answer[1, 0]
    assert abs(answer[0, 0]) < 1e-3


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6, 1e30])
def test_dual_softmax_at_any_scale(scale):
    """Who scores highest by far has all of the item; β·s in float32 alone is off by more than 1 beyond 1e5."""
    scores = scale * torch.tensor([[1.0, 0.3], [-1.0, 0.1], [0.2, 0.7]])
    answer = DualSoftmax(100.0).rescore(scores)
    wanted = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.7]]).double()
    torch.testing.assert_close(answer / scale, wanted, rtol=1e-6, atol=1e-12)


def test_csls_says_once_that_k_is_more_than_there_is(caplog):
    criterion, scores = CSLS(100000), torch.rand(60, 12, generator=torch.Generator().manual_seed(0))
    with caplog.at_level(logging.WARNING, "vsehub"):
        answer = criterion.rescore(scores)
        criterion.rescore(scores)
        CSLS(60).rescore(scores)
    assert [record.getMessage() for record in caplog.records] == [
        "CSLS: k is 100000, but there are 60 reference queries: k is taken as 60 for the items"
    ]
    assert torch.equal(answer, CSLS(60).rescore(scores))
