"""Families of paired comparisons: what is averaged over which seeds, what is corrected over what, what may be said."""

import numpy as np
import pytest
from scipy import stats

from vsehub.report.statistics import APART, IMAGES, NOTHING, SEEDS, TOO_FEW, Pair, compare, sign_flip_p

IMAGES_COUNT = 200


def parts(level, images=20.0, seeds=(0, 1, 2), trainings=1.0, draw=0):
    """seed -> contributions whose mean is `level` plus the seed's own share; images and trainings vary as told."""
    random = np.random.default_rng(draw)
    noise = random.normal(0, images, size=(len(seeds), IMAGES_COUNT))
    shares = np.linspace(-trainings, trainings, len(seeds)) if len(seeds) > 1 else [0.0]
    return {seed: level + share + own - own.mean() for seed, share, own in zip(seeds, shares, noise, strict=True)}


def outcomes(**cases):
    names = list(cases)
    found = compare(cases, [Pair(one, other) for n, one in enumerate(names) for other in names[n + 1 :]])
    return dict(zip(zip(found["one"], found["other"], strict=True), found["outcome"], strict=True))


def test_figures_of_a_pair():
    one, other = parts(330.0, draw=1, seeds=(0, 1, 2, 3)), parts(300.0, trainings=4.0, draw=2, seeds=(2, 1, 5, 3))
    row = compare({"a": one, "b": other}, [Pair("a", "b")]).iloc[0]
    seeds = (1, 2, 3)  # the common ones, whatever their order
    each = np.mean([one[seed] - other[seed] for seed in seeds], axis=0)
    rsums = [[case[seed].mean() for seed in seeds] for case in (one, other)]
    assert (row["seeds"], row["images"]) == (3, IMAGES_COUNT)
    assert row["difference"] == pytest.approx(each.mean(), rel=1e-12)
    assert row["rsum_one"] - row["rsum_other"] == pytest.approx(row["difference"], rel=1e-9)
    assert row["low"] < row["difference"] < row["high"]
    assert row["p_images"] == sign_flip_p(each[:, None])[0]
    assert row["p_seeds"] == pytest.approx(stats.ttest_rel(*rsums).pvalue, rel=1e-9)


def test_each_test_alone_is_no_claim():
    clear = outcomes(a=parts(330.0), b=parts(300.0, draw=1))
    assert clear == {("a", "b"): APART}
    # trainings differ by more than the cases: the images are sure, the seeds are not
    assert outcomes(a=parts(330.0, trainings=30.0), b=parts(300.0, trainings=-30.0, draw=1)) == {("a", "b"): IMAGES}
    # images differ by more: each training repeats the difference, other images might not
    assert outcomes(a=parts(330.0, images=3000.0), b=parts(300.0, images=3000.0, draw=1)) == {("a", "b"): SEEDS}
    assert outcomes(a=parts(300.1, trainings=2.0), b=parts(300.0, trainings=-2.0, draw=1)) == {("a", "b"): NOTHING}


def test_fewer_than_three_seeds_claim_nothing():
    for seeds in ((4,), (4, 5)):
        assert outcomes(a=parts(330.0, seeds=seeds), b=parts(300.0, draw=1, seeds=(4, 5, 6))) == {("a", "b"): TOO_FEW}


def test_seeds_that_agree_are_floored_at_one_image_query():
    """Three trainings of equal difference: the deviation is taken to be 100 / images, that of one image found."""
    one, other = ({seed: np.full(IMAGES_COUNT, level) for seed in (0, 1, 2)} for level in (301.0, 300.0))
    row = compare({"a": one, "b": other}, [Pair("a", "b")]).iloc[0]
    step = 100 / IMAGES_COUNT
    assert row["p_seeds"] == pytest.approx(stats.ttest_1samp([1 - step, 1.0, 1 + step], 0.0).pvalue)
    assert row["p_seeds"] > 0.05


def test_the_sign_does_not_matter_and_equal_cases_are_not_apart():
    better, worse = parts(330.0), parts(300.0, draw=1)
    for first, second in (("a", "b"), ("b", "a")):
        row = compare({"a": better, "b": worse}, [Pair(first, second)]).iloc[0]
        assert row["outcome"] == APART
        assert (row["difference"] > 0) == (first == "a")
    row = compare({"a": better, "b": better}, [Pair("a", "b")]).iloc[0]
    assert (row["p_images"], row["p_seeds"], row["outcome"], row["low"], row["high"]) == (1, 1, NOTHING, 0, 0)


def test_company_makes_a_claim_harder():
    """The same pair, alone and in a family of ten: p stays, Holm's does not."""
    cases = {"a": parts(330.0, trainings=2.2), "b": parts(300.0, draw=1, trainings=-2.2)}
    alone = compare(cases, [Pair("a", "b")]).iloc[0]
    others = {f"c{n}": parts(300.0, draw=10 + n, trainings=n - 4.0) for n in range(9)}
    family = compare(cases | others, [Pair("a", "b"), *(Pair(name, "b") for name in others)])
    row = family.iloc[0]
    assert (row["p_images"], row["p_seeds"]) == (alone["p_images"], alone["p_seeds"])
    assert row["holm_seeds"] == pytest.approx(10 * alone["p_seeds"])
    assert (alone["outcome"], row["outcome"]) == (APART, IMAGES)


def test_no_pairs_are_no_rows():
    assert len(compare({"a": parts(1.0)}, [])) == 0
