"""p values against plain loops, on ties, shared answers and nasty truth; and the promise that they make, by chance."""

import logging
import math
from functools import cache

import numpy as np
import pytest
import torch
from looped import looped
from scipy import stats
from test_estimator import INDUCTIVE, built, refused, same, unit

from vsehub import CorrectedSearch
from vsehub.serving.calibration import Calibration

QUERIES, ITEMS, REFERENCE = unit(30, 1), unit(60, 2), unit(31, 3)
OWN = torch.arange(30) * 2
RATES = (0.01, 0.05, 0.07, 0.1, 0.29, 1 / 3, 0.5, 0.57, 0.9, 0.99)


def calibrated(name="csls", queries=QUERIES, truth=OWN, **settings):
    return CorrectedSearch(name, k=5).fit(ITEMS, reference=REFERENCE).calibrate(queries, truth, **settings)


def test_p_values_thresholds_and_rates_are_those_of_loops():
    random = np.random.default_rng(0)
    for size in (1, 2, 9, 28, 99, 100):
        for scores in (random.integers(0, 4, size) / 4, random.standard_cauchy(size), np.full(size, -2.5)):
            calibration = Calibration(torch.from_numpy(scores), torch.from_numpy(scores + 1))
            best = np.concatenate([scores, scores + 1e-9, [-np.inf, -9, 0, 0.25, 1e9]])
            wanted = [(1 + sum(score >= s for score in scores)) / (size + 1) for s in best]
            assert calibration.p_values(torch.from_numpy(best)).tolist() == wanted
            for rate in (*RATES, 1 / (size + 1), 2 / (size + 1) * (size > 1) or 0.6):
                if 1 / (size + 1) > rate:
                    refused("rate", lambda calibration=calibration, rate=rate: calibration.threshold(rate))
                    continue
                threshold = calibration.threshold(rate)
                assert [s > threshold for s in best] == [p <= rate for p in wanted]
                share = calibration.at_rate(rate)
                count = sum(s > threshold for s in scores + 1)
                assert share["accepted"] == pytest.approx(count / size)
                low, high = share["interval"]
                assert stats.binom.sf(count - 1, size, low) == pytest.approx(0.025) or count == low == 0
                assert stats.binom.cdf(count, size, high) == pytest.approx(0.025) or (count, high) == (size, 1)


@looped("name", ["nns", "csls", "is", "sinkhorn"])
def test_new_queries_without_an_answer_are_accepted_at_the_rate(name):
    """Vectors with hubs: queries of points of which half are items, the others are not there."""
    rates, shares, answered = (0.05, 0.2), {0.05: [], 0.2: []}, {0.05: [], 0.2: []}
    for seed in range(6):
        points = unit(600, 100 + seed)
        noise = torch.randn(600, 8, generator=torch.Generator().manual_seed(seed))
        queries = torch.nn.functional.normalize(points + 0.15 * noise, dim=1)
        # Items are the first 300: of 100 the queries are the reference, of 199 they calibrate.
        search = CorrectedSearch(name).fit(points[:300], reference=queries[:100])
        search.calibrate(queries[100:299], torch.arange(100, 299))
        _, _, p = search.search(queries, p_values=True)
        for rate in rates:
            shares[rate].append((p[300:] <= rate).double().mean().item())
            answered[rate].append((p[100:300] <= rate).double().mean().item())
    for rate in rates:
        law = stats.betabinom(300, round(200 * rate), 200 - round(200 * rate))
        assert np.mean(shares[rate]) <= rate + 3.1 * law.std() / 300 / math.sqrt(6), rate
        assert np.mean(answered[rate]) > 1.5 * rate


@cache
def fitted(name):
    rule = built(name).correction
    return rule, rule.fit(lambda: iter((REFERENCE @ ITEMS.T,)))


def null_score(name, query, answers):
    """The best score of one query without its answers, all at once."""
    rule, terms = fitted(name)
    others = [item for item in range(len(ITEMS)) if item not in answers]
    return float(rule.corrected((query @ ITEMS.T)[None, others], (), tuple(term[others] for term in terms)).max())


SINGLE = [
    name
    for name in INDUCTIVE
    if not (built(name).takes_reference_items or built(name).correction.query_terms_affect_order)
]


@looped("name", SINGLE)
def test_null_scores_are_those_of_a_loop(name):
    # Answers that are the query's nearest items, which no null score may come from; one query has many, one none.
    best = (QUERIES @ ITEMS.T).argsort(dim=1, descending=True)
    pairs, taken = [], set()
    for row, count in enumerate([1, 2, 0, 9, *[1] * 26]):
        free = [item for item in best[row].tolist() if item not in taken][:count]
        taken.update(free)
        pairs += [(row, item) for item in free]
    calibration = calibrated(name, truth=torch.tensor(pairs)[torch.randperm(len(pairs))]).calibration_
    wanted = [null_score(name, QUERIES[row], [i for q, i in pairs if q == row]) for row in range(30) if row != 2]
    torch.testing.assert_close(
        calibration.null_scores, torch.tensor(wanted).double().sort().values, rtol=1e-4, atol=1e-5
    )
    plain = CorrectedSearch(name).fit(ITEMS, reference=REFERENCE)
    best_scores = plain.search(QUERIES, 1)[0][[row for row in range(30) if row != 2], 0]
    assert torch.equal(calibration.best_scores, best_scores.double().sort().values)


def test_one_query_of_each_group_that_shares_answers():
    # 0-1-2 in a chain, 3 and 4 by one item, 5 alone, 6 without an answer.
    pairs = [(0, 0), (1, 0), (1, 1), (2, 1), (3, 7), (4, 7), (5, 9)]
    groups = ({0, 1, 2}, {3, 4}, {5})
    alone = [null_score("csls", QUERIES[row], [i for q, i in pairs if q == row]) for row in range(6)]
    queries = set()
    for seed in range(20):
        scores = calibrated(truth=torch.tensor(pairs), seed=seed).calibration_.null_scores
        drawn = {int(np.abs(np.array(alone) - score).argmin()) for score in scores.tolist()}
        assert len(scores) == 3
        assert all(len(drawn & group) == 1 for group in groups)
        assert torch.equal(scores, calibrated(truth=torch.tensor(pairs), seed=seed).calibration_.null_scores)
        queries |= drawn
    assert queries == set(range(6))


def test_queries_in_the_reference_are_left_out_with_their_groups(caplog):
    queries = torch.cat([QUERIES[:9], REFERENCE[4:5]])
    truth = torch.tensor([*range(1, 9), 0, 0])  # the last shares the answer of the ninth
    with caplog.at_level(logging.WARNING):
        calibration = calibrated(queries=queries, truth=truth).calibration_
    assert "1 of 10" in caplog.text
    assert torch.equal(
        calibration.null_scores, calibrated(queries=QUERIES[:8], truth=truth[:8]).calibration_.null_scores
    )


def test_search_gives_p_values_and_cuts():
    search = CorrectedSearch("is", k=5).fit(ITEMS, reference=REFERENCE, ids=range(60)).calibrate(QUERIES, OWN)
    queries = torch.cat([unit(20, 7), ITEMS[:3]])
    values, positions = search.search(queries)
    *result, p = search.search(queries, p_values=True)
    same(result, (values, positions))
    assert np.array_equal(p, search.calibration_.p_values(torch.as_tensor(values[:, 0])))
    rate = float(np.sort(np.unique(p))[1])
    passes = np.asarray(p) <= rate
    assert 0 < passes.sum() < len(passes)
    cut, left, again = search.search(queries, p_values=True, accept=rate)
    assert np.array_equal(again, p)
    assert np.array_equal(cut, np.where(passes[:, None], values, -np.inf))
    assert np.array_equal(left, np.where(passes[:, None], positions, -1))
    names = search.search(queries, return_ids=True, accept=rate)[1]
    assert names == [[str(position) for position in row if position >= 0] for row in np.asarray(left).tolist()]


def test_changes_make_it_void():
    fitted, tuned = calibrated().fit(ITEMS, reference=REFERENCE), calibrated().tune(unit(60, 8), torch.arange(60))
    refused("accept", *(lambda search=search: search.search(QUERIES, accept=0.1) for search in (fitted, tuned)))


EVERYTHING = torch.stack((torch.full((60,), 3), torch.arange(60)), dim=1)


@looped(
    ("call", "name"),
    [
        (lambda: calibrated(truth=EVERYTHING), "truth"),
        (lambda: calibrated(truth=EVERYTHING[:0]), "query"),
        (lambda: calibrated(truth=OWN[:3]), "truth"),
        (lambda: calibrated(truth=OWN + 50), "item"),
        (lambda: calibrated(queries=QUERIES[:, :4]), "queries"),
        (lambda: calibrated(queries=QUERIES * torch.nan), "queries"),
        (lambda: calibrated(queries=REFERENCE, truth=torch.arange(31)), "queries"),
        (lambda: calibrated("qb_norm"), "criterion"),
        (lambda: calibrated("mutual_proximity"), "criterion"),
        (lambda: CorrectedSearch("csls").fit(ITEMS).calibrate(QUERIES, OWN), "criterion"),
        (lambda: CorrectedSearch("gm").fit(ITEMS).calibrate(QUERIES, OWN), "criterion"),
        *((lambda rate=rate: calibrated().search(QUERIES, accept=rate), "rate") for rate in (0.01, 0, 1, -1, math.nan)),
        *(
            (lambda scores=scores: Calibration(scores, scores), "null_scores")
            for scores in (OWN[:0], OWN[:, None], OWN / 0)
        ),
        (lambda: Calibration(torch.ones(3), torch.ones(2)), "best_scores"),
    ],
)
def test_bad_input(call, name):
    refused(name, call)
