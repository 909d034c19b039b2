"""Paired tests against scipy and plain enumeration, Holm by hand, ties, nothing to tell, one seed."""

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from vsehub.checks import InputError
from vsehub.report.statistics import bootstrap_interval, holm, seeds_p, sign_flip_p

# As contributions differ: multiples of 20, many zero, so that many flips tie with the observed mean.
SMALL = 20.0 * np.array([[1, 0, 3], [0, 0, -2], [2, 0, 5], [-1, 0, 1], [4, 0, 4], [0, 0, 2], [3, 0, -1], [1, 0, 0]])


def by_enumeration(values):
    """The share of all flips whose absolute sum reaches the observed one, in whole numbers."""
    whole = [round(value / 20) for value in values]
    sums = [
        abs(sum(s * v for s, v in zip(signs, whole, strict=True)))
        for signs in itertools.product((1, -1), repeat=len(whole))
    ]
    return sum(one >= abs(sum(whole)) for one in sums) / len(sums)


@pytest.mark.parametrize("images", [1, 2, 8, 12])
def test_small_families_are_enumerated(images):
    differences = np.concatenate([SMALL, SMALL[::-1] + 20])[:images]
    expected = [by_enumeration(column) for column in differences.T]
    assert sign_flip_p(differences, flips=1).tolist() == expected


def test_many_images_come_near_scipy_and_repeat():
    random = np.random.default_rng(3)
    differences = 20.0 * random.integers(-5, 6, size=(60, 2)) + [16.0, 0.0]
    expected = [
        stats.permutation_test(
            (column, np.zeros(60)), lambda x, y, axis: np.mean(x - y, axis=axis), permutation_type="samples",
            vectorized=True, n_resamples=50_000, rng=np.random.default_rng(0),
        ).pvalue
        for column in differences.T
    ]  # fmt: skip
    found = sign_flip_p(differences, flips=40_000)
    assert found == pytest.approx(expected, abs=5 * math.sqrt(0.25 / 40_000))
    assert found[0] < 0.2 < found[1]
    assert sign_flip_p(differences, flips=40_000).tolist() == found.tolist()
    assert sign_flip_p(differences[:, :1], flips=40_000)[0] == found[0]  # company changes nothing


def test_p_is_never_zero_and_order_in_a_sum_is_no_difference():
    same = np.full((40, 1), 0.1)
    assert sign_flip_p(same, flips=999)[0] == 1 / 1000  # no random flip is all one sign
    shuffled = np.array([[0.1], [0.2], [0.3], [-0.6]])  # sums to 5.6e-17 or 0, by the order
    assert sign_flip_p(shuffled)[0] == 1


@pytest.mark.parametrize("images", [5, 50])
def test_no_difference_is_p_one(images):
    nothing = np.zeros((images, 2))
    assert sign_flip_p(nothing).tolist() == [1, 1]
    assert [bound.tolist() for bound in bootstrap_interval(nothing, draws=100)] == [[0, 0], [0, 0]]


def test_level_is_kept_under_the_null():
    """Of 400 comparisons without a difference about one in twenty has p < 0.05."""
    differences = np.random.default_rng(0).standard_t(3, size=(80, 400))
    assert 0.025 < (sign_flip_p(differences, flips=2_000) < 0.05).mean() < 0.08


def test_interval_is_that_of_drawn_images():
    random = np.random.default_rng(1)
    differences = random.normal(3.0, 10.0, size=(400, 1))
    low, high = bootstrap_interval(differences)
    half = 1.96 * differences.std() / 20
    assert [low[0], high[0]] == pytest.approx([differences.mean() - half, differences.mean() + half], abs=0.12)
    found = stats.bootstrap(
        (differences[:, 0],), np.mean, method="percentile", n_resamples=10_000, rng=np.random.default_rng(5)
    )
    assert [low[0], high[0]] == pytest.approx(list(found.confidence_interval), abs=0.12)


def test_seeds():
    one, other = [327.1, 330.5, 322.0], [301.0, 300.2, 304.9]
    expected = stats.ttest_rel(one, other).pvalue
    assert seeds_p(np.subtract(one, other), 0.2) == pytest.approx(expected, rel=1e-12)
    assert seeds_p([0.0, 0.0, 0.0], 0.2) == 1
    for few in ([29.0], [], [2.0, 2.0], [2.0, 3.0]):
        assert math.isnan(seeds_p(few, 0.2))


def test_holm_by_hand():
    # sorted: 0.005 x 4, 0.01 x 3 (0.03), 0.03 x 2 (0.06), 0.04 x 1, which must not fall below 0.06
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.02, 0.02]) == pytest.approx([0.04, 0.04])
    assert holm([0.6, 0.7]).tolist() == [1, 1]
    found = holm([math.nan, 0.02, math.nan, 0.03])  # a family of two
    assert found[[1, 3]] == pytest.approx([0.04, 0.04])
    assert np.isnan(found[[0, 2]]).all()
    assert np.isnan(holm([math.nan])).all()
    assert len(holm([])) == 0


@pytest.mark.parametrize("bad", [np.zeros(3), np.zeros((0, 2)), np.array([[np.nan]])])
def test_bad_differences_are_refused(bad):
    with pytest.raises(InputError, match="differences"):
        sign_flip_p(bad)
