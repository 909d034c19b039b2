"""The one-pass engine against dense matrices and loops."""

import math

import numpy as np
import pytest
import torch
from looped import looped
from measuring import measure

from vsehub.checks import InputError
from vsehub.criteria import (
    CSLS,
    NNN,
    Chain,
    DualBankSinkhorn,
    DualInvertedSoftmax,
    InvertedSoftmax,
    QBNorm,
    RelaxedGreedyMatching,
    Sinkhorn,
)
from vsehub.neighbors import tiles
from vsehub.positives import Positives
from vsehub.ranking import measure as engine

CRITERIA = {
    "csls": CSLS(k=3),
    "is": InvertedSoftmax(),
    "nnn": NNN(k=4),
    "qb_norm": QBNorm(),
    "sinkhorn": Sinkhorn(temperature=0.5, rounds=2),
}


@pytest.fixture(params=[(512, 4096, 16384), (3, 4, 6)], ids=["whole", "tiles"])
def sizes(request, monkeypatch):
    for name, value in zip(("TILE_QUERIES", "TILE_ITEMS", "QUERIES_HELD"), request.param, strict=True):
        monkeypatch.setattr(tiles, name, value)


def sides(queries, items, dim=6, seed=0):
    """Unit rows, negative products among them: (Q, D), (M, D), reference (Q // 2 + 1, D)."""
    generator = np.random.default_rng(seed)
    rows = [generator.normal(size=(n, dim)) for n in (queries, items, queries // 2 + 1)]
    return [one / np.linalg.norm(one, axis=1, keepdims=True) for one in rows]


def pairs(queries, items, seed=0):
    """Up to four positives a query; every fifth query has none."""
    generator = np.random.default_rng(seed)
    found = {
        query: set(generator.integers(0, items, min(4, items)).tolist()) for query in range(queries) if query % 5 != 4
    }
    query = torch.tensor([query for query, answers in found.items() for _ in answers])
    item = torch.tensor([answer for answers in found.values() for answer in answers])
    return found, Positives.from_pairs(query, item, queries, items, complete=False)


def ranked(scores):
    return [sorted(range(scores.shape[1]), key=lambda item, row=row: (-row[item], item)) for row in scores.tolist()]


def expected(order, plain, found, items, k):
    """All figures of a ranking by loops: order is every query's whole list."""
    figures = {}
    for n in (one for one in (1, 5, 10) if one <= items):
        counts, bad = [0] * items, [0] * items
        for query, row in enumerate(order):
            for item in row[:n]:
                counts[item] += 1
                bad[item] += query in found and item not in found[query]
        mean = sum(counts) / items
        deviation = math.sqrt(sum((one - mean) ** 2 for one in counts) / items)
        skew = sum((one - mean) ** 3 for one in counts) / items / deviation**3 if deviation else 0.0
        figures |= {f"skew_{n}": skew, f"largest_hub_{n}": max(counts), f"antihub_rate_{n}": counts.count(0) / items}
        figures |= {f"bad_share_{n}": sum(bad) / (len(found) * n), f"largest_bad_hub_{n}": max(bad)}
    truth = {
        f"r{n}": 100 * sum(bool(found[query] & set(order[query][:n])) for query in found) / len(found)
        for n in (1, 5, 10)
    }
    precision = average = 0.0
    for query, answers in found.items():
        hits = [item in answers for item in order[query][: len(answers)]]
        precision += sum(hits) / len(answers)
        average += sum(sum(hits[: n + 1]) / (n + 1) for n, hit in enumerate(hits) if hit) / len(answers)
    truth |= {"map_r": 100 * average / len(found), "r_precision": 100 * precision / len(found)}
    queries = len(order)
    first = sum(mine[0] != theirs[0] for mine, theirs in zip(order, plain, strict=True)) / queries
    kept = sum(len(set(mine[:k]) & set(theirs[:k])) / k for mine, theirs in zip(order, plain, strict=True)) / queries
    return figures, truth, {"first": first, "overlap": kept}


@looped("inductive", [False, True])
@looped(("queries", "items", "k"), [(17, 40, 3), (40, 12, 12), (9, 1, 1), (25, 4, 2), (3, 30, 15)])
def test_all_figures_are_those_of_loops(queries, items, k, inductive, sizes):
    asked, among, other = sides(queries, items)
    found, positives = pairs(queries, items)
    reference = other if inductive else None
    measured = measure(asked, among, CRITERIA, reference, k, positives)
    scores = torch.from_numpy(asked) @ torch.from_numpy(among).T
    seen = torch.from_numpy(other) @ torch.from_numpy(among).T if inductive else None
    plain = ranked(scores)
    assert [one.name for one in measured.rankings] == ["nns", *CRITERIA]
    assert measured.ks == tuple(n for n in (1, 5, 10) if n <= items)
    for one in measured.rankings:
        order = plain if one.name == "nns" else ranked(CRITERIA[one.name].rescore(scores, seen))
        assert one.positions.tolist() == [row[:k] for row in order], one.name
        hubness, truth, changed = expected(order, plain, found, items, k)
        for name, value in hubness.items():
            assert one.hubness[name] == pytest.approx(value, abs=1e-12), (one.name, name)
        assert one.truth == pytest.approx(truth)
        assert one.changed == pytest.approx(changed)
        assert one.occurrences.amounts.sum() == queries * measured.ks[-1]
        for n in measured.ks:
            histogram = one.histograms[str(n)]
            assert sum(histogram["items"]) == items
            assert sum(np.multiply(histogram["occurrences"], histogram["items"])) == queries * n
    torch.testing.assert_close(measured.rankings[0].values, scores.gather(1, measured.rankings[0].positions))


def test_one_query_without_truth():
    asked, among, _ = sides(1, 8)
    plain, csls = measure(asked, among, {"csls": CSLS(k=2)}, k=8).rankings
    assert plain.truth is plain.wrong is None
    assert "bad_share_1" not in plain.hubness
    assert csls.changed["overlap"] == 1.0


def test_equal_scores_of_many_queries(sizes):
    """Products of small whole numbers tie everywhere: the lower item first, in lists and so in counts."""
    generator = np.random.default_rng(3)
    asked, among = generator.integers(-1, 2, (50, 3)).astype(float), generator.integers(-1, 2, (30, 3)).astype(float)
    scores = torch.from_numpy(asked @ among.T)
    criterion = CSLS(k=4)  # means of four whole numbers are exact
    plain, corrected = measure(asked, among, {"csls": criterion}, k=7).rankings
    orders = ranked(scores), ranked(criterion.rescore(scores))
    for one, order in zip((plain, corrected), orders, strict=True):
        assert one.positions.tolist() == [row[:7] for row in order]
        assert one.occurrences.dense().tolist() == np.bincount([item for row in order for item in row[:10]]).tolist()


@pytest.mark.parametrize(("queries", "items", "k"), [(30, 12, 4), (12, 30, 10), (9, 3, 2)])
def test_matchings_are_made_for_each_k(queries, items, k):
    """R@n and N_n come from the matching with n; the lists, and what changed, from that with k."""
    asked, among, _ = sides(queries, items)
    found, positives = pairs(queries, items)
    rgm = RelaxedGreedyMatching(relaxation=1.0)
    criteria = {"rgm": rgm, "csls": CSLS(k=3), "csls+rgm": Chain([CSLS(k=3), rgm])}
    measured = measure(asked, among, criteria, None, k, positives)
    scores = torch.from_numpy(asked) @ torch.from_numpy(among).T
    for one in (measured.rankings[1], measured.rankings[3]):
        orders = {n: ranked(criteria[one.name].rescore(scores, k=min(n, items))) for n in (1, 5, 10, k)}
        assert one.positions.tolist() == [row[:k] for row in orders[k]]
        for n in measured.ks:
            counts = np.bincount([item for row in orders[n] for item in row[:n]], minlength=items)
            assert one.hubness[f"largest_hub_{n}"] == counts.max()
        for n in (1, 5, 10):
            share = sum(bool(found[query] & set(orders[n][query][:n])) for query in found) / len(found)
            assert one.truth[f"r{n}"] == pytest.approx(100 * share)
        assert (one.truth["map_r"] is None) == (k < max(map(len, found.values())))
        first = sum(row[0] != plain[0] for row, plain in zip(orders[k], ranked(scores), strict=True)) / queries
        assert one.changed["first"] == pytest.approx(first)


def test_reference_items(sizes):
    """Each criterion that takes them has them, others are as without; a chain hands them to its correction."""
    asked, among, other = sides(20, 30)
    bank = sides(2, 17, seed=5)[1]
    dual, dbsn = DualInvertedSoftmax(20.0, 5.0), DualBankSinkhorn(0.2, 4)
    criteria = {"csls": CSLS(k=3), "dual_is": dual, "dbsn": dbsn}
    measured = measure(asked, among, criteria, other, 4, reference_items=bank)
    scores, seen, of_items, of_queries = (
        torch.from_numpy(one) for one in (asked @ among.T, other @ among.T, bank @ among.T, other @ bank.T)
    )
    wanted = [
        criteria["csls"].rescore(scores, seen),
        dual.rescore(scores, seen, reference_item_scores=of_items),
        dbsn.rescore(scores, seen, reference_item_scores=of_queries),
    ]
    for one, dense in zip(measured.rankings[1:], wanted, strict=True):
        assert one.positions.tolist() == [row[:4] for row in ranked(dense)], one.name
    for name in ("dual_is", "dbsn"):
        without = measure(asked, among, {name: criteria[name]}, other, 4).rankings[1].positions
        given = next(one for one in measured.rankings if one.name == name)
        assert not torch.equal(without, given.positions)
    chain = Chain([dual, RelaxedGreedyMatching()])
    matched = measure(asked, among, {"chain": chain}, None, 4, reference_items=bank).rankings[1]
    assert matched.positions.tolist() == chain.search(asked, among, k=4, reference_items=bank)[1].tolist()


@looped(
    ("changes", "named"),
    [
        ({"k": 31}, "k is 31"),
        ({"k": 0}, "k is 0"),
        ({"reference": np.zeros((0, 6))}, "reference"),
        ({"items": np.zeros((30, 5))}, "items"),
        ({"reference_items": np.zeros((7, 5))}, "reference_items"),
        ({"positives": Positives.from_pairs(torch.tensor([0]), torch.tensor([0]), 9, 30, False)}, "positives"),
        ({"criteria": {"rgm": RelaxedGreedyMatching()}, "reference": np.ones((4, 6))}, "rgm .* reference"),
        ({"criteria": {"rgm": RelaxedGreedyMatching()}}, "rgm .* 20 x 30"),
    ],
)
def test_what_does_not_fit(changes, named):
    asked, among, _ = sides(20, 30)
    given = {"queries": asked, "items": among, "criteria": {"csls": CSLS()}} | changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MOST_MATCHED", 599)
        with pytest.raises(InputError, match=named):
            measure(**given)
