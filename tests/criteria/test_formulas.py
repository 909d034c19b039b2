"""Every criterion against its formula, written with loops over single entries, and against other implementations."""

import math
from functools import partial

import numpy as np
import pytest
import torch
from golden_arrays import CASES, golden
from looped import looped

from vsehub.criteria import (
    CSLS,
    NNN,
    DistributionNormalization,
    DualBankSinkhorn,
    DualInvertedSoftmax,
    DualSoftmax,
    InvertedSoftmax,
    LocalScaling,
    MutualProximity,
    QBNorm,
    Sinkhorn,
)
from vsehub.criteria.base import fit_all
from vsehub.metrics import k_occurrences, skewness
from vsehub.neighbors.vectors import as_vectors

EXACT = {"rtol": 1e-9, "atol": 1e-12}


def unit(n, seed, dim=5):
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(n, dim, generator=generator, dtype=torch.float64), dim=1)


def mean(values):
    return math.fsum(values) / len(values)


def csls(s, r, k=10):
    def nearest(values):
        return mean(sorted(values, reverse=True)[:k])

    return [[2 * x - nearest(row) - nearest(r[:, m]) for m, x in enumerate(row)] for row in s]


def nnn(s, r, k=3, weight=0.75):
    return [[x - weight * mean(sorted(r[:, m], reverse=True)[:k]) for m, x in enumerate(row)] for row in s]


def dn(s, r, weight=0.5):
    return [[x - weight * mean(list(r[:, m])) for m, x in enumerate(row)] for row in s]


def inverted_softmax(s, r, beta=30.0, weight=1.0):
    terms = [weight * math.log(math.fsum(math.exp(beta * y) for y in column)) for column in r.T]
    return [[beta * x - term for x, term in zip(row, terms, strict=True)] for row in s]


def dual_is(s, r, g, beta1=20.0, beta2=3.0):
    of_queries, of_items = inverted_softmax(s, r, beta1), inverted_softmax(s, g, beta2)
    return [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(of_queries, of_items, strict=True)]


def dual_softmax(s, r, beta=100.0):
    return [
        [x * math.exp(beta * x) / math.fsum(math.exp(beta * y) for y in r[:, m]) for m, x in enumerate(row)]
        for row in s
    ]


def mutual_proximity(s, r):
    def below(x, values):
        deviation = math.sqrt(mean([(value - mean(values)) ** 2 for value in values]))
        return 0.5 * math.erfc(-(x - mean(values)) / deviation / math.sqrt(2))

    return [[math.log(below(x, list(row)) * below(x, list(r[:, m]))) for m, x in enumerate(row)] for row in s]


def local_scaling(s, r, k=5):
    def distance(values):
        return math.sqrt(2 - 2 * sorted(values, reverse=True)[:k][-1])

    return [[-(2 - 2 * x) / (distance(row) * distance(r[:, m])) for m, x in enumerate(row)] for row in s]


def sinkhorn(s, r, temperature=0.05, rounds=7):
    plan = np.exp(r / temperature)
    v = np.ones(r.shape[1])
    for _ in range(rounds):
        u = [1 / len(r) / sum(plan[q, m] * v[m] for m in range(r.shape[1])) for q in range(len(r))]
        v = [1 / r.shape[1] / sum(plan[q, m] * u[q] for q in range(len(r))) for m in range(r.shape[1])]
    return [[x / temperature + math.log(v[m]) for m, x in enumerate(row)] for row in s]


def relative_sinkhorn(s, r, temperature=0.5, rounds=1, weight=0.75):
    """Its temperature is in units of the mean deviation of a reference query's scores."""
    tau = temperature * mean([math.sqrt(mean([(x - mean(list(row))) ** 2 for x in row])) for row in r])
    if tau < 1e-12:
        return s.tolist()
    terms = sinkhorn(np.zeros_like(s), r, tau, rounds)
    return [[x + weight * tau * log_v for x, log_v in zip(*rows, strict=True)] for rows in zip(s, terms, strict=True)]


def dbsn(s, r, b):
    """The items' part of Sinkhorn normalisation of the reference queries x (items, then reference items)."""
    everything = sinkhorn(np.concatenate((s, np.zeros((len(s), b.shape[1]))), axis=1), np.concatenate((r, b), axis=1))
    return [row[: s.shape[1]] for row in everything]


def qb_norm(s, r, beta=20.0, k=2):
    hubs = {m for row in r for m in sorted(range(len(row)), key=lambda m: (-row[m], m))[:k]}
    rows = []
    for row in s:
        nearest = min(range(len(row)), key=lambda m: (-row[m], m))
        shares = [math.log(math.fsum(math.exp(beta * y) for y in r[:, m])) / beta for m in range(len(row))]
        rows.append([x - shares[m] if nearest in hubs else x for m, x in enumerate(row)])
    return rows


FORMULAS = [
    (CSLS(10), csls),
    (NNN(3, 0.75), nnn),
    (DistributionNormalization(0.5), dn),
    (InvertedSoftmax(30.0), inverted_softmax),
    (InvertedSoftmax(20.0, 0.75), partial(inverted_softmax, beta=20.0, weight=0.75)),
    (DualSoftmax(100.0), dual_softmax),
    (MutualProximity(), mutual_proximity),
    (LocalScaling(5), local_scaling),
    (Sinkhorn(0.05, 7, 1.0, relative=False), sinkhorn),
    (Sinkhorn(), relative_sinkhorn),
    (Sinkhorn(0.35, 3, 0.5), partial(relative_sinkhorn, temperature=0.35, rounds=3, weight=0.5)),
    (DualBankSinkhorn(0.05, 7), sinkhorn),
    (QBNorm(20.0, 2), qb_norm),
]
DUAL, DBSN = DualInvertedSoftmax(20.0, 3.0), DualBankSinkhorn(0.05, 7)
WITH_ITEMS = [(DUAL, dual_is), (DBSN, dbsn)]
# Case -> queries, items, reference queries and reference items from (7, 5), (12, 5), (9, 5), (20, 5).
SIDES = {
    "plain": lambda q, m, r, b: (q, m, r, b),
    "one of each": lambda q, m, r, b: (q[:1], m[:1], r[:1], b[:1]),
    "one reference item": lambda q, m, r, b: (q, m, r, b[:1]),
    "one reference query": lambda q, m, r, b: (q, m, r[:1], b),
    "few items": lambda q, m, r, b: (q, m[:2], r, b),
    "copies": lambda q, m, r, b: (q[[0, 0, 1]], m[[0, 1, 0, 2, 1, 1]], r[[0, 0]], b[[3, 3, 3, 0]]),
    "all products negative": lambda q, m, r, b: (-q.abs(), m.abs(), -r.abs(), b.abs()),
    "not normalised": lambda q, m, r, b: (2 * q, 0.1 * m, 3 * r, 0.2 * b),
}


def vectors(case):
    return SIDES[case](unit(7, 0), unit(12, 1), unit(9, 2), unit(20, 3))


def item_scores(criterion, item, reference, bank):
    return bank @ item.T if criterion.reference_items_as == "rows" else reference @ bank.T


@looped(("criterion", "formula"), FORMULAS)
@looped(("queries", "items", "references"), [(7, 12, 9), (12, 7, 5), (3, 30, 40)])
def test_formula(criterion, formula, queries, items, references):
    query, item, reference = (unit(n, seed, dim=6) for seed, n in enumerate((queries, items, references)))
    s, r = query @ item.T, reference @ item.T
    # Inverted softmax leaves a query out of its own sum.
    for reference_scores in (r, None) if formula is not inverted_softmax else (r,):
        naive = formula(s.numpy(), (s if reference_scores is None else reference_scores).numpy())
        naive = torch.tensor(naive, dtype=torch.float64)
        torch.testing.assert_close(criterion.rescore(s, reference_scores), naive, **EXACT)


@looped(("criterion", "formula"), WITH_ITEMS)
@looped("case", SIDES)
@looped("transductive", [False, True])
def test_formula_with_reference_items(criterion, formula, case, transductive):
    query, item, reference, bank = vectors(case)
    references = query if transductive else reference
    s, r, further = query @ item.T, references @ item.T, item_scores(criterion, item, references, bank)
    answer = criterion.rescore(s, None if transductive else r, reference_item_scores=further)
    naive = torch.tensor(formula(s.numpy(), r.numpy(), further.numpy()), dtype=torch.float64)
    differ = answer - naive
    if criterion is DBSN:  # whose bias is right but for a number that all items share
        differ = differ - differ[0, 0]
    torch.testing.assert_close(differ, torch.zeros_like(differ), rtol=0, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    arrays = golden(case)
    i2t = arrays["gallery_image"] @ arrays["gallery_caption"].T
    for direction, scores in (("i2t", i2t), ("t2i", i2t.T)):
        torch.testing.assert_close(InvertedSoftmax(30.0).rescore(scores), arrays[f"is_{direction}"], **EXACT)
        torch.testing.assert_close(CSLS(10).rescore(scores), arrays[f"csls_{direction}"], **EXACT)
    torch.testing.assert_close(InvertedSoftmax(30.0).rescore(i2t, i2t), arrays["is_all_i2t"], **EXACT)
    r = arrays["reference_caption"] @ arrays["gallery_image"].T
    for weight, k in ((0.75, 16), (0.5, 1)):
        torch.testing.assert_close(NNN(k, weight).rescore(i2t.T, r), arrays[f"nnn_t2i_w{weight}_k{k}"], **EXACT)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 3])
def test_golden_qb_norm(case, k):
    """Values are scaled otherwise there; active queries and the order of every row must be the same."""
    arrays = golden(case)
    s = arrays["gallery_caption"] @ arrays["gallery_image"].T
    bank = arrays["reference_caption"][: len(arrays["gallery_image"]) // 4] @ arrays["gallery_image"].T
    criterion = QBNorm(20.0, k)
    *_, active = criterion.query_terms((s,), criterion.item_terms(bank))
    wanted = arrays[f"qb_norm_active_k{k}"].bool()
    assert torch.equal(active.squeeze(1), wanted)
    assert 0 < wanted.sum() < len(wanted)
    theirs = arrays[f"qb_norm_t2i_b20_k{k}"]
    assert torch.equal(criterion.rescore(s, bank).argsort(dim=1), theirs.argsort(dim=1))


@looped("k", [1, 3])
def test_transductive_qb_norm_is_the_inverted_softmax(k):
    """Every query is its own reference, so that its nearest item is a hub of the bank."""
    scores, plain = torch.rand(23, 40, dtype=torch.float64), InvertedSoftmax(20.0)
    scores[:, 7] = scores[:, 3]  # ties
    answer = QBNorm(20.0, k).rescore(scores)
    torch.testing.assert_close(answer, scores - plain.bias(scores) / 20.0, **EXACT)
    assert torch.equal(*(values.argsort(descending=True, stable=True) for values in (answer, plain.rescore(scores))))


def test_inverted_softmax_where_one_query_owns_an_item():
    """The others' sum is e^-2000 of the whole: a difference of sums has no digit of it left."""
    scores = torch.tensor([[1.0, 0.2], [-1.0, 0.3], [-1.0, 0.1]])
    logits = 1000.0 * scores.double()
    naive = torch.stack(
        [logits[q] - torch.cat([logits[:q], logits[q + 1 :]]).logsumexp(dim=0) for q in range(len(scores))]
    )
    assert torch.isfinite(InvertedSoftmax(1000.0).rescore(scores)).all()
    torch.testing.assert_close(InvertedSoftmax(1000.0).rescore(scores.double()), naive, **EXACT)


@looped("cached", [2**18, 8])
@looped("far", [-0.5, -1.0])
def test_sinkhorn_of_an_item_whose_shares_all_underflow(far, cached, monkeypatch):
    """All queries are far from one item: its shares are e^-150 or less, which float32 does not hold, nor its mass."""
    monkeypatch.setattr("vsehub.criteria.sinkhorn.CACHED", cached)  # 8: the item is in a block of its own
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(6, 5, generator=generator) / 10 + 0.9
    scores[:, 2] = far + torch.rand(6, generator=generator) / 10
    rule = Sinkhorn(0.01, 3, 1.0, relative=False)
    shares = (scores / 0.01 - (scores / 0.01).logsumexp(dim=1, keepdim=True)).exp()
    assert shares[:, 2].max() < torch.finfo(torch.float32).tiny
    wanted = torch.tensor(sinkhorn(scores.double().numpy(), scores.double().numpy(), 0.01, 3)).double()
    assert (rule.rescore(scores) - wanted).abs().max() < 2e-4
    assert (rule.rescore(scores.double()) - wanted).abs().max() < 1e-9


@looped("columns", [1, 3, 40])
def test_sinkhorn_ranks_alike_whatever_the_unit_and_offset_of_scores(columns):
    scores = unit(9, 0, dim=6) @ unit(40, 1, dim=6).T
    scores[:, 5] = scores[:, 4]  # ties
    rule, ours = Sinkhorn(rounds=2), scores.split(columns, dim=1)
    wanted = rule.rescore(scores)
    for factor, offset in ((1e-6, 0.0), (1e6, -3.0), (1.0, 100.0)):
        torch.testing.assert_close(
            (rule.rescore(factor * scores + offset) - offset) / factor, wanted, rtol=0, atol=1e-8
        )
    terms = rule.fit(lambda: iter(ours))
    torch.testing.assert_close(rule.apply(scores, terms), wanted, rtol=0, atol=1e-12)


@looped("scores", [torch.full((4, 1), 0.3), torch.full((3, 7), 0.1), torch.full((1, 5), -0.7)])
def test_sinkhorn_without_a_spread_is_plain_search(scores):
    for kind in (scores, scores.double()):
        assert torch.equal(Sinkhorn().rescore(kind), kind)


@looped("queries", [4, 40])
def test_sinkhorn_of_vectors_whose_mean_is_far_from_0(queries, monkeypatch):
    """More queries than dimensions: their spread is that of the items' covariance."""
    monkeypatch.setattr("vsehub.neighbors.tiles.COLUMN_ELEMENTS", 3 * queries)  # three items at a time
    monkeypatch.setattr("vsehub.neighbors.tiles.NARROW", 1)
    items, reference = 3 * unit(8, 0) + 10, unit(queries, 1)
    items[5] = items[4]
    (bias,) = fit_all([Sinkhorn()], as_vectors("items", items), as_vectors("reference", reference))[0]
    scores = reference @ items.T
    wanted = torch.tensor(relative_sinkhorn(scores.numpy(), scores.numpy()), dtype=torch.float64)
    torch.testing.assert_close(scores - bias, wanted, **EXACT)


def test_local_scaling_takes_a_score_above_1_as_1():
    """Of unit vectors rounding alone makes such scores; without the bound the farther beyond 1 the better."""
    scores = torch.tensor([[1.0, 1.0 + 1e-6, 0.5]], dtype=torch.float64)
    answer = LocalScaling(1).rescore(scores, torch.tensor([[0.5, 0.5, 0.5]], dtype=torch.float64))
    assert answer[0, 0] == answer[0, 1] == 0 > answer[0, 2]


def test_shares_beyond_single_precision_still_rank():
    """A far pair's share is e^-200 of the whole; two such pairs keep the order of their scores."""
    scores = torch.tensor([[1.0, 0.98, 1.0], [-1.0, -0.99, -0.97]])
    rescored = DualSoftmax(100.0).rescore(scores)
    assert (rescored[1] < 0).all()
    assert rescored[1].unique().numel() == 3
    assert torch.isfinite(MutualProximity().rescore(scores.repeat(1, 50))).all()


@looped("criterion", [criterion for criterion, _ in FORMULAS])
@looped(
    "scores", [torch.ones(1, 1), torch.full((4, 1), 0.3), torch.full((1, 5), -0.5), torch.ones(6, 7), -torch.eye(5)]
)
def test_degenerate_matrices_stay_finite(criterion, scores):
    """One query, one item, all equal, copies at distance zero, scores below zero: no NaN; equal stays equal."""
    answer = criterion.rescore(scores, scores)
    assert torch.isfinite(answer).all()
    if (scores == scores[0, 0]).all():
        # (to rounding: sums over more columns than one may differ in their last digit)
        torch.testing.assert_close(answer, answer[:1, :1].expand_as(answer))


@looped("criterion", [InvertedSoftmax(30.0), InvertedSoftmax(1000.0), CSLS(10), CSLS(1)])
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
