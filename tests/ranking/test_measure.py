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
    for name, value in zip(("TILE_QUERIES", "TILE_ITEMS", "QUERIES_AT_ONCE"), request.param, strict=True):
        monkeypatch.setattr(tiles, name, value)


def sides(queries, items, dim=6, seed=0):
    """Unit rows, negative products among them: (Q, D), (M, D), reference (Q // 2 + 1, D)."""
    generator = np.random.default_rng(seed)
    rows = [generator.normal(size=(n, dim)) for n in (queries, items, queries // 2 + 1)]
    return [matrix / np.linalg.norm(matrix, axis=1, keepdims=True) for matrix in rows]


def pairs(queries, items, seed=0):
    """Up to four positives a query; every fifth query has none."""
    generator = np.random.default_rng(seed)
    of_query = {
        query: set(generator.integers(0, items, min(4, items)).tolist()) for query in range(queries) if query % 5 != 4
    }
    query = torch.tensor([query for query, answers in of_query.items() for _ in answers])
    item = torch.tensor([answer for answers in of_query.values() for answer in answers])
    return of_query, Positives.from_pairs(query, item, queries, items, complete=False)


def ranked(scores):
    return [sorted(range(scores.shape[1]), key=lambda item, row=row: (-row[item], item)) for row in scores.tolist()]


def expected(order, plain, of_query, items, k):
    """All figures of a ranking by loops: order is every query's whole list."""
    figures = {}
    for n in (k for k in (1, 5, 10) if k <= items):
        counts, bad = [0] * items, [0] * items
        for query, row in enumerate(order):
            for item in row[:n]:
                counts[item] += 1
                bad[item] += query in of_query and item not in of_query[query]
        mean = sum(counts) / items
        deviation = math.sqrt(sum((count - mean) ** 2 for count in counts) / items)
        skew = sum((count - mean) ** 3 for count in counts) / items / deviation**3 if deviation else 0.0
        figures |= {f"skew_{n}": skew, f"largest_hub_{n}": max(counts), f"antihub_rate_{n}": counts.count(0) / items}
        figures |= {f"bad_share_{n}": sum(bad) / (len(of_query) * n), f"largest_bad_hub_{n}": max(bad)}
    truth = {
        f"r{n}": 100 * sum(bool(of_query[query] & set(order[query][:n])) for query in of_query) / len(of_query)
        for n in (1, 5, 10)
    }
    precision = average = 0.0
    for query, answers in of_query.items():
        hits = [item in answers for item in order[query][: len(answers)]]
        precision += sum(hits) / len(answers)
        average += sum(sum(hits[: n + 1]) / (n + 1) for n, hit in enumerate(hits) if hit) / len(answers)
    truth |= {"map_r": 100 * average / len(of_query), "r_precision": 100 * precision / len(of_query)}
    queries = len(order)
    first = sum(mine[0] != theirs[0] for mine, theirs in zip(order, plain, strict=True)) / queries
    overlap = sum(len(set(mine[:k]) & set(theirs[:k])) / k for mine, theirs in zip(order, plain, strict=True)) / queries
    return figures, truth, {"first": first, "overlap": overlap}


@looped("inductive", [False, True])
@looped(("queries", "items", "k"), [(17, 40, 3), (40, 12, 12), (9, 1, 1), (25, 4, 2), (3, 30, 15)])
def test_all_figures_are_those_of_loops(queries, items, k, inductive, sizes):
    query_rows, among, other = sides(queries, items)
    of_query, positives = pairs(queries, items)
    reference = other if inductive else None
    measured = measure(query_rows, among, CRITERIA, reference, k, positives)
    scores = torch.from_numpy(query_rows) @ torch.from_numpy(among).T
    reference_scores = torch.from_numpy(other) @ torch.from_numpy(among).T if inductive else None
    plain = ranked(scores)
    assert [ranking.name for ranking in measured.rankings] == ["nns", *CRITERIA]
    assert measured.ks == tuple(n for n in (1, 5, 10) if n <= items)
    for ranking in measured.rankings:
        order = plain if ranking.name == "nns" else ranked(CRITERIA[ranking.name].rescore(scores, reference_scores))
        assert ranking.positions.tolist() == [row[:k] for row in order], ranking.name
        hubness, truth, changed = expected(order, plain, of_query, items, k)
        for name, value in hubness.items():
            assert ranking.hubness[name] == pytest.approx(value, abs=1e-12), (ranking.name, name)
        assert ranking.truth == pytest.approx(truth)
        assert ranking.changed == pytest.approx(changed)
        assert ranking.occurrences.amounts.sum() == queries * measured.ks[-1]
        for n in measured.ks:
            histogram = ranking.histograms[str(n)]
            assert sum(histogram["items"]) == items
            assert sum(np.multiply(histogram["occurrences"], histogram["items"])) == queries * n
    torch.testing.assert_close(measured.rankings[0].values, scores.gather(1, measured.rankings[0].positions))


def test_one_query_without_truth():
    query_rows, among, _ = sides(1, 8)
    plain, csls = measure(query_rows, among, {"csls": CSLS(k=2)}, k=8).rankings
    assert plain.truth is plain.wrong is None
    assert "bad_share_1" not in plain.hubness
    assert csls.changed["overlap"] == 1.0


def test_equal_scores_of_many_queries(sizes):
    """Products of small whole numbers tie everywhere: the lower item first, in lists and so in counts."""
    generator = np.random.default_rng(3)
    query_rows, among = (
        generator.integers(-1, 2, (50, 3)).astype(float),
        generator.integers(-1, 2, (30, 3)).astype(float),
    )
    scores = torch.from_numpy(query_rows @ among.T)
    criterion = CSLS(k=4)  # means of four whole numbers are exact
    plain, corrected = measure(query_rows, among, {"csls": criterion}, k=7).rankings
    orders = ranked(scores), ranked(criterion.rescore(scores))
    for ranking, order in zip((plain, corrected), orders, strict=True):
        assert ranking.positions.tolist() == [row[:7] for row in order]
        assert (
            ranking.occurrences.dense().tolist() == np.bincount([item for row in order for item in row[:10]]).tolist()
        )


@pytest.mark.parametrize(("queries", "items", "k"), [(30, 12, 4), (12, 30, 10), (9, 3, 2)])
def test_matchings_are_made_for_each_k(queries, items, k):
    """R@n and N_n come from the matching with n, and which first items moved from that with 1; the lists have k."""
    query_rows, among, _ = sides(queries, items)
    of_query, positives = pairs(queries, items)
    rgm = RelaxedGreedyMatching(relaxation=1.0)
    criteria = {"rgm": rgm, "csls": CSLS(k=3), "csls+rgm": Chain([CSLS(k=3), rgm])}
    measured = measure(query_rows, among, criteria, None, k, positives)
    scores = torch.from_numpy(query_rows) @ torch.from_numpy(among).T
    for ranking in (measured.rankings[1], measured.rankings[3]):
        orders = {n: ranked(criteria[ranking.name].rescore(scores, k=min(n, items))) for n in (1, 5, 10, k)}
        assert ranking.positions.tolist() == [row[:k] for row in orders[k]]
        for n in measured.ks:
            counts = np.bincount([item for row in orders[n] for item in row[:n]], minlength=items)
            assert ranking.hubness[f"largest_hub_{n}"] == counts.max()
        for n in (1, 5, 10):
            share = sum(bool(of_query[query] & set(orders[n][query][:n])) for query in of_query) / len(of_query)
            assert ranking.truth[f"r{n}"] == pytest.approx(100 * share)
        assert (ranking.truth["map_r"] is None) == (k < max(map(len, of_query.values())))
        assert ranking.first_items[:, 0].tolist() == [row[0] for row in orders[1]]
        first = sum(row[0] != plain[0] for row, plain in zip(orders[1], ranked(scores), strict=True)) / queries
        assert ranking.changed["first"] == pytest.approx(first)


def test_reference_items(sizes):
    """Each criterion that takes them has them, others are as without; a chain hands them to its correction."""
    query_rows, among, other = sides(20, 30)
    bank = sides(2, 17, seed=5)[1]
    dual, dbsn = DualInvertedSoftmax(20.0, 5.0), DualBankSinkhorn(0.2, 4)
    criteria = {"csls": CSLS(k=3), "dual_is": dual, "dbsn": dbsn}
    measured = measure(query_rows, among, criteria, other, 4, reference_items=bank)
    scores, reference_scores, of_items, of_queries = (
        torch.from_numpy(matrix) for matrix in (query_rows @ among.T, other @ among.T, bank @ among.T, other @ bank.T)
    )
    wanted = [
        criteria["csls"].rescore(scores, reference_scores),
        dual.rescore(scores, reference_scores, reference_item_scores=of_items),
        dbsn.rescore(scores, reference_scores, reference_item_scores=of_queries),
    ]
    for ranking, dense in zip(measured.rankings[1:], wanted, strict=True):
        assert ranking.positions.tolist() == [row[:4] for row in ranked(dense)], ranking.name
    for name in ("dual_is", "dbsn"):
        without = measure(query_rows, among, {name: criteria[name]}, other, 4).rankings[1].positions
        ranking = next(ranking for ranking in measured.rankings if ranking.name == name)
        assert not torch.equal(without, ranking.positions)
    chain = Chain([dual, RelaxedGreedyMatching()])
    matched = measure(query_rows, among, {"chain": chain}, None, 4, reference_items=bank).rankings[1]
    assert matched.positions.tolist() == chain.search(query_rows, among, k=4, reference_items=bank)[1].tolist()


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
    query_rows, among, _ = sides(20, 30)
    arguments = {"queries": query_rows, "items": among, "criteria": {"csls": CSLS()}} | changes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "MOST_MATCHED", 599)
        with pytest.raises(InputError, match=named):
            measure(**arguments)
