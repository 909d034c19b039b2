"""Every criterion against its formula, written with loops over single entries, and against other implementations."""

import math

import numpy as np
import pytest
import torch
from golden_arrays import CASES, golden
from looped import looped

from vsehub.checks import InputError
from vsehub.criteria import (
    CSLS,
    NNN,
    DistributionNormalization,
    DualBankSinkhorn,
    DualSoftmax,
    InvertedSoftmax,
    LocalScaling,
    MutualProximity,
    QBNorm,
    Sinkhorn,
)

EXACT = {"rtol": 1e-9, "atol": 1e-12}


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


def inverted_softmax(s, r, beta=30.0):
    return [
        [beta * x - math.log(math.fsum(math.exp(beta * y) for y in r[:, m])) for m, x in enumerate(row)] for row in s
    ]


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
    (DualSoftmax(100.0), dual_softmax),
    (MutualProximity(), mutual_proximity),
    (LocalScaling(5), local_scaling),
    (Sinkhorn(0.05, 7), sinkhorn),
    (DualBankSinkhorn(0.05, 7), sinkhorn),  # with reference items: test_reference_items.py
    (QBNorm(20.0, 2), qb_norm),
]


@looped(("criterion", "formula"), FORMULAS)
@looped(("queries", "items", "references"), [(7, 12, 9), (12, 7, 5), (3, 30, 40)])
def test_formula(criterion, formula, queries, items, references):
    generator = torch.Generator().manual_seed(queries)
    sides = [torch.randn(n, 6, generator=generator, dtype=torch.float64) for n in (queries, items, references)]
    query, item, reference = (torch.nn.functional.normalize(side, dim=1) for side in sides)
    s, r = query @ item.T, reference @ item.T
    naive = torch.tensor(formula(s.numpy(), r.numpy()), dtype=torch.float64)
    torch.testing.assert_close(criterion.rescore(s, r), naive, **EXACT)
    if formula is not inverted_softmax:  # which leaves a query out of its own sum
        naive = torch.tensor(formula(s.numpy(), s.numpy()), dtype=torch.float64)
        torch.testing.assert_close(criterion.rescore(s), naive, **EXACT)


@pytest.mark.parametrize("case", CASES)
def test_golden_nnn(case):
    arrays = golden(case)
    s = arrays["gallery_caption"] @ arrays["gallery_image"].T
    r = arrays["reference_caption"] @ arrays["gallery_image"].T
    for weight, k in ((0.75, 16), (0.5, 1)):
        torch.testing.assert_close(NNN(k, weight).rescore(s, r), arrays[f"nnn_t2i_w{weight}_k{k}"], **EXACT)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("k", [1, 3])
def test_golden_qb_norm(case, k):
    """Values are scaled otherwise there; active queries and the order of every row must be the same."""
    arrays = golden(case)
    s = arrays["gallery_caption"] @ arrays["gallery_image"].T
    bank = arrays["reference_caption"][: len(arrays["gallery_image"]) // 4] @ arrays["gallery_image"].T
    criterion = QBNorm(20.0, k)
    terms = criterion.fit(lambda: iter((bank,)))
    (active,) = criterion.query_terms((s,), terms)
    wanted = arrays[f"qb_norm_active_k{k}"].bool()
    assert torch.equal(active.squeeze(1), wanted)
    assert 0 < wanted.sum() < len(wanted)
    theirs = arrays[f"qb_norm_t2i_b20_k{k}"]
    assert torch.equal(criterion.rescore(s, bank).argsort(dim=1), theirs.argsort(dim=1))


def test_sinkhorn_is_uniform_in_the_end():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(30, 20, generator=generator, dtype=torch.float64)
    plan = Sinkhorn(1.0, 50).rescore(scores).exp()
    shares = (plan / plan.sum(dim=1, keepdim=True)).sum(dim=0)  # rows are normalised, so the columns must be uniform
    torch.testing.assert_close(shares, torch.full((20,), 1.5, dtype=torch.float64), rtol=1e-6, atol=0)


@looped("cached", [2**18, 8])
@looped("far", [-0.5, -1.0])
def test_sinkhorn_of_an_item_whose_shares_all_underflow(far, cached, monkeypatch):
    """All queries are far from one item: its shares are e^-150 or less, which float32 does not hold, nor its mass."""
    monkeypatch.setattr("vsehub.criteria.sinkhorn.CACHED", cached)  # 8: the item is in a block of its own
    generator = torch.Generator().manual_seed(0)
    scores = torch.rand(6, 5, generator=generator) / 10 + 0.9
    scores[:, 2] = far + torch.rand(6, generator=generator) / 10
    rule = Sinkhorn(0.01, 3)
    shares = (scores / 0.01 - (scores / 0.01).logsumexp(dim=1, keepdim=True)).exp()
    assert shares[:, 2].max() < torch.finfo(torch.float32).tiny
    wanted = np.array(sinkhorn(scores.double().numpy(), scores.double().numpy(), 0.01, 3))
    for given in (scores, scores.double()):
        found = rule.rescore(given).double().numpy()
        assert np.abs(found - wanted).max() < (2e-4 if given.dtype == torch.float32 else 1e-9)


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
def test_degenerate_matrices_stay_finite(criterion):
    """One query, one item, all equal, copies at distance zero, scores below zero: no NaN; equal stays equal."""
    for scores in (
        torch.ones(1, 1),
        torch.full((4, 1), 0.3),
        torch.full((1, 5), -0.5),
        torch.ones(6, 7),
        -torch.eye(5),
    ):
        answer = criterion.rescore(scores, scores)
        assert torch.isfinite(answer).all()
        if (scores == scores[0, 0]).all():
            # (to rounding: sums over more columns than one may differ in their last digit)
            torch.testing.assert_close(answer, answer[:1, :1].expand_as(answer))


@looped(
    ("call", "message"),
    [
        (lambda: NNN(0), "k is 0; expected a whole number above 0"),
        (lambda: NNN(4, -1.0), "weight is -1.0; expected a number above 0"),
        (lambda: QBNorm(k=True), "k is True; expected a whole number"),
        (lambda: Sinkhorn(rounds=0), "rounds is 0; expected a whole number"),
        (lambda: Sinkhorn(temperature=0), "temperature is 0; expected a number above 0"),
        (lambda: LocalScaling(1.5), "k is 1.5; expected a whole number"),
        (lambda: DualSoftmax(0), "beta is 0; expected a number above 0"),
    ],
)
def test_bad_settings(call, message):
    with pytest.raises(InputError, match=message):
        call()
