"""Criteria that look at reference items: against loops, streaming against dense, with and without such items."""

import math

import numpy as np
import pytest
import torch
from criteria.test_formulas import EXACT, sinkhorn
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import (
    CSLS,
    Chain,
    DistributionNormalization,
    DualBankSinkhorn,
    DualInvertedSoftmax,
    InvertedSoftmax,
    RelaxedGreedyMatching,
    Sinkhorn,
)
from vsehub.criteria.base import fit_all
from vsehub.neighbors import tiles
from vsehub.neighbors.vectors import as_vectors

DUAL, DBSN = DualInvertedSoftmax(20.0, 3.0), DualBankSinkhorn(0.05, 7)
BOTH = [DUAL, DBSN]


def log_sum(values):
    return math.log(math.fsum(math.exp(value) for value in values))


def dual_is(query, item, reference, bank, beta1=20.0, beta2=3.0):
    """(β1 + β2)s - log Σ_r e^{β1 s(r,m)} - log Σ_g e^{β2 s(g,m)}, entry by entry."""
    of_queries = [log_sum(beta1 * float(r @ m) for r in reference) for m in item]
    of_items = [log_sum(beta2 * float(g @ m) for g in bank) for m in item]
    return [[(beta1 + beta2) * float(q @ m) - of_queries[i] - of_items[i] for i, m in enumerate(item)] for q in query]


def dbsn(query, item, reference, bank):
    """The items' part of Sinkhorn normalisation of the reference queries x (items, then reference items)."""
    union = np.concatenate((item, bank))
    return np.array(sinkhorn(query @ union.T, reference @ union.T))[:, : len(item)]


NAIVE = {DUAL: dual_is, DBSN: dbsn}


def unit(n, seed, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


def vectors(case):
    """Queries, items, reference queries, reference items."""
    query, item, reference, bank = unit(7, 0), unit(12, 1), unit(9, 2), unit(20, 3)
    match case:
        case "one of each":
            return query[:1], item[:1], reference[:1], bank[:1]
        case "one reference item":
            return query, item, reference, bank[:1]
        case "one reference query":
            return query, item, reference[:1], bank
        case "few items":
            return query, item[:2], reference, bank
        case "copies":
            return query[[0, 0, 1]], item[[0, 1, 0, 2, 1, 1]], reference[[0, 0]], bank[[3, 3, 3, 0]]
        case "all products negative":
            query, item, reference, bank = (side.abs() for side in (query, item, reference, bank))
            return -query, item, -reference, bank
        case "not normalised":
            return 2 * query, 0.1 * item, 3 * reference, 0.2 * bank
    return query, item, reference, bank


CASES = ["plain", "one of each", "one reference item", "one reference query", "few items", "copies"]
CASES += ["all products negative", "not normalised"]


def item_scores(criterion, item, reference, bank):
    return bank @ item.T if criterion.reference_items_as == "rows" else reference @ bank.T


@looped("criterion", BOTH)
@looped("case", CASES)
def test_formula(criterion, case):
    query, item, reference, bank = vectors(case)
    for own_queries in (False, True):
        seen = query if own_queries else reference
        naive = torch.tensor(np.array(NAIVE[criterion](*(side.numpy() for side in (query, item, seen, bank)))))
        found = criterion.rescore(
            query @ item.T,
            None if own_queries else reference @ item.T,
            reference_item_scores=item_scores(criterion, item, seen, bank),
        )
        differ = found - naive
        if criterion is DBSN:  # whose bias is right but for a number that all items share
            differ = differ - differ[0, 0]
        torch.testing.assert_close(differ, torch.zeros_like(differ), rtol=0, atol=1e-9)


@pytest.fixture(params=[None, (3, 4, 5), (1, 1, 1)], ids=["whole", "tiles", "single-scores"])
def sizes(request, monkeypatch):
    if request.param is not None:
        for name, value in zip(("TILE_QUERIES", "TILE_ITEMS", "QUERIES_HELD"), request.param, strict=True):
            monkeypatch.setattr(tiles, name, value)
        monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 12)
        monkeypatch.setattr(tiles, "LEAST_COLUMNS", 1)


@looped("criterion", BOTH)
@looped("case", [case for case in CASES if case != "copies"])  # whose ties rounding settles
def test_search_is_the_dense_ranking(criterion, case, sizes):
    """With other reference items, and without any: then the items themselves, as rows or as columns, rank alike."""
    query, item, reference, bank = vectors(case)
    for own_queries in (False, True):
        for own_items in (False, True):
            seen = query if own_queries else reference
            dense = criterion.rescore(
                query @ item.T,
                None if own_queries else reference @ item.T,
                reference_item_scores=item_scores(criterion, item, seen, item if own_items else bank),
            )
            _, positions = criterion.search(
                query,
                item,
                None if own_queries else reference,
                len(item),
                reference_items=None if own_items else bank,
            )
            assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True))


@looped("criterion", BOTH)
def test_equal_values_come_in_their_order(criterion, sizes):
    """Copies of items: of equal values the lower position first. Small whole numbers have exact products."""
    query, item, reference, bank = (
        torch.randint(-1, 2, (n, 6), generator=torch.Generator().manual_seed(n)).double() for n in (4, 3, 6, 5)
    )
    item = item[[0, 1, 2, 0, 1, 2, 2, 1, 0, 0, 1]]
    for own in (False, True):
        values, positions = criterion.search(query, item, reference, 11, reference_items=None if own else bank)
        ties = values[:, 1:] == values[:, :-1]
        assert (values[:, 1:] <= values[:, :-1]).all()
        assert (positions.diff(dim=1) > 0)[ties].all()
        assert ties.any()


def test_several_criteria_share_the_passes(sizes, monkeypatch):
    """Each is fitted as alone; the columnwise ones look at the reference queries once together."""
    item, reference, bank = unit(12, 1), unit(9, 2), unit(20, 3)
    criteria = [InvertedSoftmax(20.0), DUAL, CSLS(3), DBSN]
    given = [as_vectors(name, side) for name, side in (("items", item), ("reference", reference), ("bank", bank))]
    together = fit_all(criteria, *given)
    for criterion, terms in zip(criteria, together, strict=True):
        torch.testing.assert_close(terms, fit_all([criterion], *given)[0], **EXACT)
    passes = []

    class Counted(DualInvertedSoftmax):
        def bias(self, reference_scores):
            passes.append(reference_scores.shape[1])
            return super().bias(reference_scores)

    fit_all([InvertedSoftmax(20.0), Counted(20.0, 3.0), Counted(30.0, 1.0)], *given)
    assert sum(passes) == 2 * len(item)


def test_memory_is_bounded(monkeypatch):
    """No matrix of items x items, nor of items x reference items."""
    for name, value in (("TILE_QUERIES", 16), ("TILE_ITEMS", 16), ("QUERIES_HELD", 32), ("COLUMN_ELEMENTS", 512)):
        monkeypatch.setattr(tiles, name, value)
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            nonlocal largest
            answer = function(*args, **(kwargs or {}))
            if isinstance(answer, torch.Tensor) and not answer._is_view():
                largest = max(largest, answer.numel())
            return answer

    query, item, bank = unit(96, 0, dim=2), unit(600, 1, dim=2), unit(300, 2, dim=2)
    for criterion in BOTH:
        for reference_items in (None, bank):
            with Watch():
                criterion.search(query, item, query[:30], 2, reference_items=reference_items)
    assert 600 <= largest <= tiles.LEAST_COLUMNS * 600


def test_dbsn_without_reference_items_is_sinkhorn():
    query, item, reference, bank = vectors("plain")
    s, r = query @ item.T, reference @ item.T
    assert DualBankSinkhorn.transductive_equal is Sinkhorn
    assert torch.equal(DBSN.rescore(s, r), Sinkhorn(0.05, 7).rescore(s, r))
    assert not torch.allclose(
        DBSN.rescore(s, r, reference_item_scores=reference @ bank.T).diff(), DBSN.rescore(s, r).diff()
    )


def test_dbsn_is_uniform_over_items_and_reference_items():
    _, item, reference, bank = vectors("plain")
    union = torch.cat((item, bank))
    plan = (DualBankSinkhorn(0.5, 200).rescore(reference @ union.T)).exp()
    bias = DualBankSinkhorn(0.5, 200).rescore(reference @ item.T, reference_item_scores=reference @ bank.T)
    plan = plan / plan.sum(dim=1, keepdim=True)
    torch.testing.assert_close(plan.sum(dim=0), torch.full((32,), 9 / 32, dtype=torch.float64), rtol=1e-6, atol=0)
    offset = bias - plan[:, :12].log()
    torch.testing.assert_close(offset, offset[:, :1].expand_as(offset), rtol=1e-6, atol=1e-6)


def test_an_item_near_many_reference_items_is_held_for_a_hub():
    item = torch.eye(3, dtype=torch.float64)
    scores = torch.full((2, 3), 0.5, dtype=torch.float64)
    answer = DUAL.rescore(scores, reference_item_scores=item[[1, 1, 2]] @ item.T)
    assert (answer.argsort(dim=1, descending=True) == torch.tensor([0, 2, 1])).all()


def test_centred_products_rank_as_distribution_normalization():
    """<q - mean q, m - mean m> is s - <mean q, m> but for a number of the query; of centred vectors' cosines not."""
    query, item, reference, _ = vectors("not normalised")
    for seen in (query, reference):
        centred = (query - seen.mean(dim=0)) @ (item - item.mean(dim=0)).T
        same = DistributionNormalization(1.0).rescore(query @ item.T, seen @ item.T)
        offset = centred - same
        torch.testing.assert_close(offset, offset[:, :1].expand_as(offset), **EXACT)
        assert torch.equal(centred.argsort(dim=1), same.argsort(dim=1))
        cosines = centred / (item - item.mean(dim=0)).norm(dim=1)
        assert not torch.equal(cosines.argsort(dim=1), same.argsort(dim=1))


@looped("criterion", BOTH)
def test_a_chain_hands_them_on(criterion):
    query, item, _, bank = vectors("plain")
    chain = Chain([criterion, RelaxedGreedyMatching(1.0)])
    further = item_scores(criterion, item, query, bank)
    corrected = criterion.rescore(query @ item.T, reference_item_scores=further)
    wanted = RelaxedGreedyMatching(1.0).match(corrected, 3)
    assert torch.equal(chain.match(query @ item.T, 3, reference_item_scores=further), wanted)
    dense = chain.rescore(query @ item.T, k=3, reference_item_scores=further)
    positions = chain.search(query, item, k=3, reference_items=bank)[1]
    assert torch.equal(positions, dense.argsort(dim=1, descending=True, stable=True)[:, :3])


@looped("criterion", BOTH)
@looped("bad", [math.nan, math.inf])
def test_not_finite_reference_items_are_refused(criterion, bad):
    query, item, reference, bank = vectors("plain")
    bank[4, 1] = bad
    with pytest.raises(InputError, match="NaN or inf"):
        criterion.search(query, item, reference, reference_items=bank)
    further = item_scores(criterion, item, reference, bank)
    with pytest.raises(InputError, match="reference_item_scores are NaN or infinite"):
        criterion.rescore(query @ item.T, reference @ item.T, reference_item_scores=further)


S, R = torch.rand(4, 5), torch.rand(3, 5)


@looped(
    ("call", "message"),
    [
        (lambda: DUAL.rescore(S, R), r"DualInvertedSoftmax needs .* give reference_item_scores \(G, M\)"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.rand(5, 4)), r"\(5, 4\); expected a matrix \(any, 5\)"),
        (lambda: DBSN.rescore(S, R, reference_item_scores=torch.rand(4, 5)), r"\(4, 5\); expected a matrix \(3, any\)"),
        (lambda: DBSN.rescore(S, reference_item_scores=torch.rand(3, 5)), r"\(3, 5\); expected a matrix \(4, any\)"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.rand(0, 5)), "reference_item_scores is empty"),
        (lambda: DBSN.rescore(S, R, reference_item_scores=torch.rand(3, 0)), "reference_item_scores is empty"),
        (lambda: DUAL.rescore(S, R, reference_item_scores=torch.ones(2, 5).int()), r"holds torch\.int32 numbers"),
        (lambda: CSLS().rescore(S, R, reference_item_scores=R), "CSLS does not look at reference items"),
        (lambda: InvertedSoftmax().rescore(S, R, reference_item_scores=R), "does not look at reference items"),
        (lambda: RelaxedGreedyMatching().rescore(S, reference_item_scores=R), "does not look at reference items"),
        (lambda: CSLS().search(S, S, reference_items=S, k=1), "CSLS does not look at reference items"),
        (lambda: RelaxedGreedyMatching().search(S, S, reference_items=S, k=1), "does not look at reference items"),
        (lambda: DUAL.search(S, S, reference_items=S[:, :3], k=1), r"reference_items has shape \(4, 3\)"),
        (lambda: DUAL.search(S, S, reference_items=S[:0], k=1), "reference_items is empty"),
        (lambda: DualInvertedSoftmax(0), "beta1 is 0; expected a number above 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(InputError, match=message):
        call()
