"""The one rule for "A beats B": paired tests over test images and over seeds, corrected over a family.

rsum is a mean over test images of their contributions (the "contributions" of an evaluation record), so an image with
its captions is the unit of sampling. Random signs of the images' differences simulate two cases that are exchangeable
on every image; the t-test over seeds does the same for repeated trainings. One case is reported to beat the other only
if both corrected p are below 0.05.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from vsehub.checks import require

FLIPS = 20_000
DRAWS = 10_000
EXACT_IMAGES = 12  # up to this many images all 2^n flips are enumerated
BLOCK = 500  # flips or draws at a time
LEVEL = 0.05
FEWEST_SEEDS = 3  # with two seeds, a t-test has one degree of freedom


def sign_flip_p(differences: np.ndarray, flips: int = FLIPS, seed: int = 0) -> np.ndarray:
    """Two-sided p of the mean paired difference under random signs, one per comparison.

    `scipy.stats.permutation_test` gives the same p but took 240 times as long per flip: here all comparisons share one
    product of signs and differences.

    Args:
        differences: (I, C), one image per row, one comparison per column.
        flips: how many random flips are drawn for more than 12 images; fewer images are enumerated.

    Returns:
        (C,): the share of flips whose absolute mean is at least the observed one. The observed signs count as one of
        the random flips (Phipson and Smyth 2010), so that no p is 0. If all differences are zero, p = 1.

    Raises:
        InputError: differences is not a matrix, is empty or holds values that are not finite.
    """
    differences = _checked(differences)
    images = len(differences)
    observed = np.abs(differences.sum(axis=0))
    # Sums of the same numbers in another order differ in their last digits and count as ties.
    observed = observed - 1e-9 * np.abs(differences).sum(axis=0)
    reached, total = np.zeros(differences.shape[1]), 0
    for signs in _signs(images, flips, seed):
        reached += (np.abs(signs @ differences) >= observed).sum(axis=0)
        total += len(signs)
    return reached / total if images <= EXACT_IMAGES else (reached + 1) / (total + 1)


def bootstrap_interval(
    differences: np.ndarray, draws: int = DRAWS, seed: int = 0, level: float = 1 - LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval of the mean difference; an image is drawn with all its captions.

    `scipy.stats.bootstrap` gives the same interval but took 27 s for 28 comparisons on 5,000 images; one product of
    counts and differences takes 3 s.

    Args:
        differences: (I, C), one image per row, one comparison per column; all comparisons share the draws.

    Returns:
        The lower and upper bounds, (C,) each.
    """
    differences = _checked(differences)
    images, random = len(differences), np.random.default_rng(seed)
    means = []
    for size in _sizes(draws):
        drawn = random.integers(0, images, (size, images)) + images * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * images).reshape(size, images)
        means.append(counts @ differences / images)
    tail = (1 - level) / 2
    low, high = np.quantile(np.concatenate(means), [tail, 1 - tail], axis=0)
    return low, high


def seeds_p(differences: Sequence[float], step: float) -> float:
    """Two-sided p of the paired t-test over seeds; NaN with fewer than three of them.

    Args:
        differences: one value per seed, (S,).
        step: the smallest possible change of the metric, a lower bound of the sample standard deviation:
            seeds that agree by chance must not give p = 0. rsum changes in steps of 100 / number of queries;
            `compare` passes 100 / I, since there are fewer images than texts.
    """
    values = np.asarray(differences, dtype=float)
    if len(values) < FEWEST_SEEDS:
        return float("nan")
    error = max(values.std(ddof=1), step) / np.sqrt(len(values))
    return float(2 * stats.t.sf(abs(values.mean()) / error, len(values) - 1))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction (1979) over a family: corrected p in the order given.

    The i-th smallest of m is multiplied by m - i + 1, then raised to the largest before it, and is at most 1. NaN, a
    test that could not be made, stays NaN and does not count in the family.
    """
    values = np.asarray(p, dtype=float)
    corrected = np.full(values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return corrected


def _checked(differences: np.ndarray) -> np.ndarray:
    differences = np.asarray(differences, dtype=float)
    require(
        differences.ndim == 2 and len(differences) > 0 and bool(np.isfinite(differences).all()),
        f"differences has shape {differences.shape}; expected finite numbers (images, comparisons)",
    )
    return differences


def _signs(images: int, flips: int, seed: int) -> Iterable[np.ndarray]:
    """`flips` rows of random signs, block by block; for few images all 2^I rows, as one block."""
    if images <= EXACT_IMAGES:
        bits = np.arange(2**images)[:, None] >> np.arange(images) & 1
        yield 1.0 - 2.0 * bits
        return
    random = np.random.default_rng(seed)
    for size in _sizes(flips):
        yield 1.0 - 2.0 * random.integers(0, 2, size=(size, images), dtype=np.int8)


def _sizes(total: int) -> list[int]:
    """The size of each block."""
    return [min(BLOCK, total - first) for first in range(0, total, BLOCK)]


# Outcomes of a pair: a difference in both tests, only over images, only over seeds, in neither; too few seeds to test.
APART, IMAGES, SEEDS, NOTHING = "apart", "apart on other images", "apart in other trainings", "–"
TOO_FEW = "too few seeds"
COLUMNS = (
    "one", "other", "seeds", "images", "rsum_one", "rsum_other", "difference", "low", "high",
    "p_images", "p_seeds", "holm_images", "holm_seeds", "outcome",
)  # fmt: skip
Parts = Mapping[int, np.ndarray]  # seed -> (I,), the contribution of each image to rsum


class Pair(NamedTuple):
    """Two cases by name; `one` is ahead if the difference is above zero."""

    one: str
    other: str


def compare(cases: Mapping[str, Parts], pairs: Sequence[Pair]) -> pd.DataFrame:
    """Paired tests of a family of comparisons, over which Holm corrects: one row per pair, in the order given.

    Args:
        cases: name -> contributions by seed, all of the same images. Only seeds that both cases of a pair have are
            used.

    Returns:
        The columns one, other, seeds, images, rsum_one, rsum_other, difference, low, high (95 % over images), p_images
        (sign flips of the images' differences, averaged over the seeds), p_seeds (paired t-test), holm_images,
        holm_seeds and outcome: APART if both corrected p are below 0.05, the only claim; IMAGES or SEEDS if one is;
        NOTHING if none is; TOO_FEW with fewer than three seeds.
    """
    rows = [_row(pair, cases[pair.one], cases[pair.other]) for pair in pairs]
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    means = np.stack([row.pop("images_differences") for row in rows], axis=1)
    frame = pd.DataFrame(rows)
    frame["low"], frame["high"] = bootstrap_interval(means)
    frame["p_images"] = sign_flip_p(means)
    return corrected(frame)


def corrected(family: pd.DataFrame) -> pd.DataFrame:
    """The rows of a family with holm_images, holm_seeds and outcome, from seeds, p_images and p_seeds."""
    images, seeds = (holm(family[f"p_{name}"].to_numpy(dtype=float)) for name in ("images", "seeds"))
    cases = [family["seeds"] < FEWEST_SEEDS, (images < LEVEL) & (seeds < LEVEL), images < LEVEL, seeds < LEVEL]
    outcome = np.select(cases, [TOO_FEW, APART, IMAGES, SEEDS], NOTHING)
    return family.assign(holm_images=images, holm_seeds=seeds, outcome=outcome)[list(COLUMNS)]


def _row(pair: Pair, one: Parts, other: Parts) -> dict:
    """The tests of one pair, before the correction over the family."""
    seeds = sorted(set(one) & set(other))
    first, second = (np.stack([parts[seed] for seed in seeds]) for parts in (one, other))
    sums, others, images = first.mean(axis=1), second.mean(axis=1), first.shape[1]
    return {
        "one": pair.one,
        "other": pair.other,
        "seeds": len(seeds),
        "images": images,
        "rsum_one": sums.mean(),
        "rsum_other": others.mean(),
        "difference": (sums - others).mean(),
        "p_seeds": seeds_p(sums - others, 100 / images),
        "images_differences": (first - second).mean(axis=0),
    }
