"""Paired tests against scipy and plain enumeration, Holm by hand, and what a pair of cases may claim."""

import itertools

import numpy as np
import pytest
from scipy import stats

from vsehub.report.statistics import (
    APART,
    IMAGES,
    NOTHING,
    SEEDS,
    TOO_FEW,
    bootstrap_interval,
    compare,
    holm,
    seeds_p,
    sign_flip_p,
)

# As contributions differ: multiples of 20, many zero, so that many flips tie with the observed mean.
SMALL = 20.0 * np.array([[1, 0, 3], [0, 0, -2], [2, 0, 5], [-1, 0, 1], [4, 0, 4], [0, 0, 2], [3, 0, -1], [1, 0, 0]])
NOISE = 5 * (0.25 / 20_000) ** 0.5  # five deviations of a share of 20,000 flips
COUNT = 200


@pytest.mark.parametrize("images", [1, 2, 8])
def test_random_flips_come_near_all_flips(images):
    differences = SMALL[:images]
    sums = np.abs([np.array(signs) @ differences for signs in itertools.product((1, -1), repeat=images)])
    expected = (sums >= np.abs(differences.sum(axis=0))).mean(axis=0)
    assert sign_flip_p(differences) == pytest.approx(expected, abs=NOISE)


def test_many_images_come_near_scipy_and_company_changes_nothing():
    random = np.random.default_rng(3)
    differences = 20.0 * random.integers(-5, 6, size=(60, 2)) + [16.0, 0.0]
    expected = [
        stats.permutation_test(
            (column, np.zeros(60)), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
            vectorized=True, n_resamples=50_000, rng=np.random.default_rng(0),
        ).pvalue
        for column in differences.T
    ]  # fmt: skip
    p = sign_flip_p(differences)
    assert p == pytest.approx(expected, abs=NOISE)
    assert sign_flip_p(differences[:, :1])[0] == p[0]


def test_p_is_never_zero_order_in_a_sum_is_no_difference_and_nothing_is_one():
    assert sign_flip_p(np.full((40, 1), 0.1), flips=999)[0] == 1 / 1000  # no random flip is all of one sign
    assert sign_flip_p(np.array([[0.1], [0.2], [0.3], [-0.6]]))[0] == 1  # sums to 5.6e-17 or 0, by the order
    assert sign_flip_p(np.zeros((5, 1)))[0] == 1


def test_level_is_kept_under_the_null():
    differences = np.random.default_rng(0).standard_t(3, size=(80, 400))
    assert 0.025 < (sign_flip_p(differences, flips=2_000) < 0.05).mean() < 0.08


def test_interval_is_scipys():
    differences = np.random.default_rng(1).normal(3.0, 10.0, size=(400, 1))
    interval = stats.bootstrap(
        (differences[:, 0],), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(5)
    )
    assert np.ravel(bootstrap_interval(differences)) == pytest.approx(list(interval.confidence_interval), abs=0.12)


def test_seeds():
    first, other = [327.1, 330.5, 322.0], [301.0, 300.2, 304.9]
    assert seeds_p(np.subtract(first, other), 0.2) == pytest.approx(stats.ttest_rel(first, other).pvalue, rel=1e-12)
    assert seeds_p([0.0, 0.0, 0.0], 0.2) == 1
    # seeds that agree: the deviation is taken to be 0.5
    assert seeds_p([1.0] * 3, 0.5) == pytest.approx(stats.ttest_1samp([0.5, 1.0, 1.5], 0.0).pvalue)
    assert np.isnan([seeds_p(few, 0.2) for few in ([29.0], [], [2.0, 3.0])]).all()


@pytest.mark.parametrize(
    ("p", "corrected"),
    [
        # sorted: 0.005 x 4, 0.01 x 3 (0.03), 0.03 x 2 (0.06), 0.04 x 1, which must not fall below 0.06
        ([0.01, 0.04, 0.03, 0.005], [0.03, 0.06, 0.06, 0.02]),
        ([0.02, 0.02], [0.04, 0.04]),
        ([0.6, 0.7], [1, 1]),
        ([np.nan, 0.02, np.nan, 0.03], [np.nan, 0.04, np.nan, 0.04]),  # a family of two
        ([], []),
    ],
)
def test_holm_by_hand(p, corrected):
    assert holm(p) == pytest.approx(corrected, nan_ok=True)


def parts(level, images=20.0, seeds=(0, 1, 2), trainings=1.0, draw=0):
    """seed -> contributions whose mean is `level` plus the seed's share; images and trainings vary by as much."""
    noise = np.random.default_rng(draw).normal(0, images, size=(len(seeds), COUNT))
    shares = np.linspace(-trainings, trainings, len(seeds))
    return {seed: level + share + row - row.mean() for seed, share, row in zip(seeds, shares, noise, strict=True)}


def test_numbers_of_a_pair():
    first, other = parts(330.0, draw=1, seeds=(0, 1, 2, 3)), parts(300.0, trainings=4.0, draw=2, seeds=(2, 1, 5, 3))
    row = compare({"a": first, "b": other}, [("a", "b")]).iloc[0]
    seeds = (1, 2, 3)  # the common ones, whatever their order
    each = np.mean([first[seed] - other[seed] for seed in seeds], axis=0)
    rsums = [[case[seed].mean() for seed in seeds] for case in (first, other)]
    assert (row["seeds"], row["images"], row["p_images"]) == (3, COUNT, sign_flip_p(each[:, None])[0])
    assert row["difference"] == pytest.approx(each.mean(), rel=1e-12)
    assert row["rsum_one"] - row["rsum_other"] == pytest.approx(each.mean(), rel=1e-9)
    assert row["low"] < row["difference"] < row["high"]
    assert row["p_seeds"] == pytest.approx(stats.ttest_rel(*rsums).pvalue, rel=1e-9)


BETTER, WORSE = parts(330.0), parts(300.0, draw=1)


@pytest.mark.parametrize(
    ("first", "other", "outcome"),
    [
        (BETTER, WORSE, APART),
        (WORSE, BETTER, APART),
        (BETTER, BETTER, NOTHING),
        # trainings differ by more than the cases: the images are sure, the seeds are not
        (parts(330.0, trainings=30.0), parts(300.0, trainings=-30.0, draw=1), IMAGES),
        # images differ by more: each training repeats the difference, other images might not
        (parts(330.0, images=3000.0), parts(300.0, images=3000.0, draw=1), SEEDS),
        (parts(300.1, trainings=2.0), parts(300.0, trainings=-2.0, draw=1), NOTHING),
        (parts(330.0, seeds=(1, 2)), WORSE, TOO_FEW),
        # three seeds that agree on a difference of two image queries
        (
            {seed: np.full(COUNT, 301.0) for seed in range(3)},
            {seed: np.full(COUNT, 300.0) for seed in range(3)},
            IMAGES,
        ),
    ],
)
def test_a_claim_needs_both_tests(first, other, outcome):
    assert compare({"a": first, "b": other}, [("a", "b")])["outcome"].tolist() == [outcome]


def test_company_makes_a_claim_harder():
    """The same pair, alone and in a family of ten: p stays, Holm's does not."""
    cases = {"a": parts(330.0, trainings=2.2), "b": parts(300.0, draw=1, trainings=-2.2)}
    cases |= {f"c{n}": parts(300.0, draw=10 + n, trainings=n - 4.0) for n in range(9)}
    alone = compare(cases, [("a", "b")]).iloc[0]
    row = compare(cases, [(name, "b") for name in cases if name != "b"]).iloc[0]
    assert (row["p_images"], row["p_seeds"]) == (alone["p_images"], alone["p_seeds"])
    assert row["holm_seeds"] == pytest.approx(10 * alone["p_seeds"])
    assert (alone["outcome"], row["outcome"]) == (APART, IMAGES)
    assert compare(cases, []).empty
