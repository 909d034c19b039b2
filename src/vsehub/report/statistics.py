"""The one rule for "A beats B": paired tests over test images and over seeds, corrected over a family.

rsum is a mean over test images of their contributions (the "contributions" of an evaluation record), so an image with
its captions is the unit of sampling. Random signs of the images' differences simulate two cases that are exchangeable
on every image; the t-test over seeds does the same for repeated trainings. One case is reported to beat the other only
if both corrected p are below 0.05.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy import special

FLIPS = 20_000
DRAWS = 10_000
BLOCK = 500  # flips or draws at a time
LEVEL = 0.05
CONFIDENCE = 0.95
FEWEST_SEEDS = 3  # with two seeds, a t-test has one degree of freedom
# Outcomes of a pair: a difference in both tests, only over images, only over seeds, in neither; too few seeds to test.
APART, IMAGES, SEEDS, NOTHING = "apart", "apart on other images", "apart in other trainings", "–"
TOO_FEW = "too few seeds"
COMPARED = (
    "one", "other", "seeds", "images", "rsum_one", "rsum_other", "difference", "low", "high",
    "p_images", "p_seeds", "holm_images", "holm_seeds", "outcome",
)  # fmt: skip
Contributions = Mapping[int, np.ndarray]  # seed -> (I,), the contribution of each image to rsum


def sign_flip_p(differences: np.ndarray, flips: int = FLIPS) -> np.ndarray:
    """Two-sided p of the mean paired difference under random signs, one per comparison.

    `scipy.stats.permutation_test` gives the same p but took 240 times as long per flip: here all comparisons share one
    product of signs and differences.

    Args:
        differences: (I, C), one image per row, one comparison per column; finite.
        flips: number of random flips.

    Returns:
        (C,): the share of flips whose absolute mean is at least the observed one. The observed signs count as one of
        the random flips (Phipson and Smyth 2010), so that no p is 0. If all differences are zero, p = 1.
    """
    random = np.random.default_rng(0)
    reached = np.ones(differences.shape[1])
    # Sums of the same numbers in another order differ in their last digits and count as ties.
    observed = np.abs(differences.sum(axis=0)) - 1e-9 * np.abs(differences).sum(axis=0)
    for first in range(0, flips, BLOCK):
        signs = random.integers(0, 2, size=(min(BLOCK, flips - first), len(differences)), dtype=np.int8)
        reached += (np.abs((1.0 - 2.0 * signs) @ differences) >= observed).sum(axis=0)
    return reached / (flips + 1)


def bootstrap_interval(differences: np.ndarray, draws: int = DRAWS) -> tuple[np.ndarray, np.ndarray]:
    """Percentile bootstrap interval of the mean difference; an image is drawn with all its captions.

    `scipy.stats.bootstrap` gives the same interval but took 27 s for 28 comparisons on 5,000 images; one product of
    counts and differences takes 3 s.

    Args:
        differences: (I, C), one image per row, one comparison per column; all comparisons share the draws.

    Returns:
        The lower and upper bounds at 95 %, (C,) each.
    """
    images = len(differences)
    random = np.random.default_rng(0)
    means = []
    for first in range(0, draws, BLOCK):
        size = min(BLOCK, draws - first)
        drawn = random.integers(0, images, (size, images)) + images * np.arange(size)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=size * images).reshape(size, images)
        means.append(counts @ differences / images)
    low, high = np.quantile(np.concatenate(means), [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2], axis=0)
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
    return float(2 * special.stdtr(len(values) - 1, -abs(values.mean()) / error))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction (1979) over a family: corrected p in the order given.

    The i-th smallest of m is multiplied by m - i + 1, then raised to the largest before it, and is at most 1. NaN, a
    test that could not be made, stays NaN and does not count in the family.
    """
    values = pd.Series(p, dtype=float)
    tested = values.dropna().sort_values(kind="stable")
    return (tested * np.arange(len(tested), 0, -1)).cummax().clip(upper=1).reindex(values.index).to_numpy()


def compare(cases: Mapping[str, Contributions], pairs: Sequence[tuple[str, str]]) -> pd.DataFrame:
    """Paired tests of a family of comparisons, over which Holm corrects: one row per pair, in the order given.

    Args:
        cases: name -> contributions by seed, all of the same images. Only seeds that both cases of a pair have are
            used.
        pairs: two names each; the first is ahead if the difference is above zero.

    Returns:
        The columns one, other, seeds, images, rsum_one, rsum_other, difference, low, high (95 % over images), p_images
        (sign flips of the images' differences, averaged over the seeds), p_seeds (paired t-test), holm_images,
        holm_seeds and outcome: APART if both corrected p are below 0.05, the only claim; IMAGES or SEEDS if one is;
        NOTHING if none is; TOO_FEW with fewer than three seeds.
    """
    rows = []
    means = []
    for case, other in pairs:
        seeds = sorted(set(cases[case]) & set(cases[other]))
        first, second = (np.stack([cases[name][seed] for seed in seeds]) for name in (case, other))
        images = first.shape[1]
        leads = (first - second).mean(axis=1)
        rows.append(
            {
                "one": case,
                "other": other,
                "seeds": len(seeds),
                "images": images,
                "rsum_one": first.mean(),
                "rsum_other": second.mean(),
                "difference": leads.mean(),
                "p_seeds": seeds_p(leads, 100 / images),
            }
        )
        means.append((first - second).mean(axis=0))
    frame = pd.DataFrame(rows)
    if rows:
        differences = np.stack(means, axis=1)
        frame["low"], frame["high"] = bootstrap_interval(differences)
        frame["p_images"] = sign_flip_p(differences)
        for name in ("images", "seeds"):
            frame[f"holm_{name}"] = holm(frame[f"p_{name}"].to_numpy())
        over_images = frame["holm_images"] < LEVEL
        over_seeds = frame["holm_seeds"] < LEVEL
        conditions = [frame["seeds"] < FEWEST_SEEDS, over_images & over_seeds, over_images, over_seeds]
        frame["outcome"] = np.select(conditions, [TOO_FEW, APART, IMAGES, SEEDS], NOTHING)
    return frame.reindex(columns=list(COMPARED))
