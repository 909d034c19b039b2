"""NaN, infinity and numbers beyond their type end in an InputError; settings are finite numbers; edges are defined."""

import math

import pytest
import torch
from criteria.test_formulas import DBSN, DUAL, unit
from criteria.test_search import CRITERIA
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
    QBNorm,
    RelaxedGreedyMatching,
    Sinkhorn,
)

MATCHING = [RelaxedGreedyMatching(), Assignment(), Chain([CSLS(), RelaxedGreedyMatching()])]
BAD = (math.nan, math.inf, -math.inf)


@looped("criterion", CRITERIA)
@looped("bad", BAD)
def test_one_such_score_is_refused(criterion, bad):
    scores, spoilt = torch.rand(6, 8), torch.rand(6, 8)
    spoilt[2, 3] = bad
    for matrices in ((spoilt, None), (spoilt, scores), (scores, spoilt)):
        with pytest.raises(InputError, match="are NaN or infinite"):
            criterion.rescore(*matrices)
    with pytest.raises(InputError, match="are NaN or infinite"):
        criterion.rescore(spoilt.double())


@looped("criterion", [*CRITERIA, *MATCHING])
@looped("bad", [math.nan, math.inf])
def test_one_such_vector_is_refused(criterion, bad):
    """Wherever it lies; only items whose product is -inf may stay behind what is found."""
    whole = [unit(n, n).float() for n in (6, 8, 7)]
    inductive = not isinstance(criterion, tuple(type(criterion) for criterion in MATCHING))
    for side in (0, 1, 2) if inductive and criterion.needs_reference else (0, 1):
        sides = [vectors.clone() for vectors in whole]
        sides[side][4, 1] = bad
        with pytest.raises(InputError, match="NaN or inf"):
            criterion.search(*(sides if inductive else sides[:2]), k=8)


@looped("criterion", [*CRITERIA, *MATCHING])
def test_products_beyond_the_type_are_refused(criterion):
    queries, items = 1e20 * unit(6, 0).float(), 1e20 * unit(8, 1).float()
    with pytest.raises(InputError, match="NaN or inf"):
        criterion.search(queries, items, k=8)


def test_a_nan_does_not_hide_above_the_kth():
    reference = torch.rand(6, 4)
    reference[0, 0] = math.nan
    with pytest.raises(InputError, match="scores are NaN or infinite"):
        LocalScaling(3).item_terms(reference)


S, R = torch.rand(4, 5), torch.rand(3, 5)
EYE = torch.eye(4)


@looped("criterion", CRITERIA)
def test_empty_and_whole_numbers_are_refused(criterion):
    for scores in (torch.zeros(0, 4), torch.zeros(3, 0), torch.ones(3, 4, dtype=torch.int64), torch.zeros(3)):
        with pytest.raises(InputError, match="scores "):
            criterion.rescore(scores)
    for k in (1.0, "3", None, True, 0, 5):
        with pytest.raises(InputError, match="k is "):
            criterion.search(unit(3, 0), unit(4, 1), k=k)


@looped(
    ("call", "named"),
    [
        (lambda: CSLS().rescore(S, R[:, :4]), "reference_scores"),
        (lambda: CSLS().rescore(S, R[:0]), "reference_scores"),
        (lambda: DistributionNormalization().rescore(3e38 * EYE, -3e38 * torch.ones(1, 4)), "corrected scores"),
        (lambda: DUAL.rescore(S, R), "reference_item_scores"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.rand(5, 4)), "reference_item_scores"),
        (lambda: DBSN.rescore(S, R, reference_item_scores=torch.rand(4, 5)), "reference_item_scores"),
        (lambda: DBSN.rescore(S, reference_item_scores=torch.rand(3, 5)), "reference_item_scores"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.rand(0, 5)), "reference_item_scores"),
        (lambda: DBSN.rescore(S, R, reference_item_scores=torch.rand(3, 0)), "reference_item_scores"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.ones(2, 5).int()), "reference_item_scores"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=R / 0), "reference_item_scores"),
        (lambda: CSLS().rescore(S, R, reference_item_scores=R), "reference items"),
        (lambda: InvertedSoftmax().rescore(S, reference_item_scores=R), "reference items"),
        (lambda: RelaxedGreedyMatching().rescore(S, reference_item_scores=R), "reference"),
        (lambda: RelaxedGreedyMatching().rescore(S, R), "reference"),
        (lambda: Assignment().search(S, S, R, k=1), "reference"),
        (lambda: RelaxedGreedyMatching().search(S, S, reference_items=S, k=1), "reference"),
        (lambda: Chain([CSLS(), RelaxedGreedyMatching()]).rescore(S, R), "reference"),
        (lambda: CSLS().search(S, S, reference_items=S, k=1), "reference items"),
        (lambda: DUAL.search(S, S, reference_items=S[:, :3], k=1), "reference_items"),
        (lambda: DUAL.search(S, S, reference_items=S[:0], k=1), "reference_items"),
        (lambda: DBSN.search(S, S, reference_items=S / 0, k=1), "NaN"),
        (lambda: CSLS().search(EYE, torch.eye(3), EYE, 1), "items"),
        (lambda: CSLS().search(EYE, EYE, EYE[:0], 1), "reference"),
        (lambda: CSLS().search(EYE.int(), EYE), "queries"),
        (lambda: CSLS().search([[1.0]], EYE), "queries"),
        (lambda: CSLS().search(torch.ones(4), EYE), "queries"),
        (lambda: Chain([CSLS(), CSLS()]), "steps"),
        (lambda: Chain([CSLS(), Chain([CSLS(), Assignment()])]), "steps"),
        (lambda: Assignment().match(torch.zeros(40000, 1).expand(-1, 30000), 1), "2,400,000,000"),
        (lambda: Assignment().match(torch.full((2, 2), torch.nan), 1), "NaN"),
        (lambda: RelaxedGreedyMatching({1: float("nan")}), "relaxation is nan"),
        (lambda: RelaxedGreedyMatching({"1": 2.0}), "a k of relaxation is '1'"),
        (lambda: RelaxedGreedyMatching(capacity="all"), "capacity is 'all'"),
        (lambda: RelaxedGreedyMatching({1: 2.0, 10: 1.5}).match(torch.zeros(2, 3), 5), "k = 5"),
        (lambda: RelaxedGreedyMatching(0.3).match(torch.zeros(2, 3), 1), "relaxation 0.3"),
        (lambda: RelaxedGreedyMatching().match(torch.zeros(2, 3), 0), "k is 0"),
        (lambda: RelaxedGreedyMatching().match(torch.zeros(3), 1), "scores"),
        (lambda: RelaxedGreedyMatching().match(torch.zeros(2, 3).int(), 1), "scores"),
        (lambda: RelaxedGreedyMatching().match(torch.zeros(0, 3), 1), "0 queries"),
        (lambda: RelaxedGreedyMatching().match(torch.tensor([[0.0, torch.nan]]), 1), "NaN"),
        (lambda: RelaxedGreedyMatching().match(torch.tensor([[0.0, torch.inf]]), 1), "inf"),
        (lambda: RelaxedGreedyMatching().search(*torch.zeros(2, 2, 4), k=3), "k is 3"),
    ],
)
def test_what_does_not_fit_is_refused(call, named):
    with pytest.raises(InputError, match=named):
        call()


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
        ("weight", lambda value: Sinkhorn(weight=value)),
        ("weight", lambda value: InvertedSoftmax(weight=value)),
        ("beta1", DualInvertedSoftmax),
        ("beta2", lambda value: DualInvertedSoftmax(50.0, value)),
        ("relaxation", RelaxedGreedyMatching),
        ("k", CSLS),
        ("k", NNN),
        ("k", LocalScaling),
        ("k", lambda value: QBNorm(k=value)),
        ("rounds", lambda value: Sinkhorn(rounds=value)),
    ],
)
def test_settings_are_finite_numbers_above_zero(name, build, value):
    with pytest.raises(InputError, match=f"{name} is "):
        build(value)


def test_a_single_query_has_no_others_to_share_with():
    """Its bias is its own score: all items are equal, dense, streaming but for rounding, and matched."""
    query, items = unit(1, 0).float(), unit(5, 1).float()
    criterion = InvertedSoftmax(30.0)
    assert torch.equal(criterion.rescore(query @ items.T), torch.zeros(1, 5))
    values, positions = criterion.search(query, items, k=5)
    assert sorted(positions[0].tolist()) == [0, 1, 2, 3, 4]
    assert values.abs().max() < 1e-4
    assert Chain([criterion, RelaxedGreedyMatching()]).match(query @ items.T, 2).tolist() == [[0, 0], [0, 1]]


@pytest.mark.parametrize("scale", [1.0, 1e4, 1e6, 1e30])
def test_dual_softmax_at_any_scale(scale):
    """Who scores highest by far has all of the item; β·s in float32 alone is off by more than 1 beyond 1e5."""
    scores = scale * torch.tensor([[1.0, 0.3], [-1.0, 0.1], [0.2, 0.7]])
    answer = DualSoftmax(100.0).rescore(scores)
    wanted = torch.tensor([[1.0, 0.0], [0.0, 0.0], [0.0, 0.7]]).double()
    torch.testing.assert_close(answer / scale, wanted, rtol=1e-6, atol=1e-12)
