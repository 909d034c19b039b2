"""Cases compared pair by pair on the same images and seeds: effect, interval, tests corrected over the family.

rsum is a mean over test images of what each contributes (`evaluation.contributions`), so the image, its captions with
it, is the unit that is drawn. Flipping the signs of the images' differences tells what chance alone would make of them
if the two cases were exchangeable on every image; the t-test asks the same of the seeds.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy import stats

from vsehub.checks import fail, require

FLIPS = 20_000
DRAWS = 10_000
EXACT_IMAGES = 12  # up to so many images all 2^n flips are counted
BLOCK = 1_000  # flips or draws at a time
LEVEL = 0.05


def sign_flip_p(differences: np.ndarray, flips: int = FLIPS, seed: int = 0) -> np.ndarray:
    """Two-sided p of the mean paired difference under random signs, one a comparison.

    differences: (I, C), an image a row, a comparison a column. Returns (C,): the share of the 2^I flips whose absolute
    mean reaches the observed one, exact for up to 12 images; for more from `flips` random ones, the observed counted
    among them (Phipson and Smyth 2010), so that no p is 0. All differences zero: p = 1. All comparisons meet the same
    flips. Raises InputError for differences that are no such matrix, empty or not finite.
    """
    differences = _checked(differences)
    images = len(differences)
    observed = np.abs(differences.sum(axis=0))
    # Sums of the same numbers in another order differ in the last digits: they are ties.
    observed = observed - 1e-9 * np.abs(differences).sum(axis=0)
    exact = images <= EXACT_IMAGES
    reached, total = np.zeros(differences.shape[1]), 0
    for signs in _all_signs(images) if exact else _random_signs(images, flips, seed):
        reached += (np.abs(signs @ differences) >= observed).sum(axis=0)
        total += len(signs)
    return reached / total if exact else (reached + 1) / (total + 1)


def bootstrap_interval(
    differences: np.ndarray, draws: int = DRAWS, seed: int = 0, level: float = 1 - LEVEL
) -> tuple[np.ndarray, np.ndarray]:
    """Percentile interval of the mean difference, images drawn with replacement, each with all its captions.

    differences: (I, C). Returns the lower and the upper bounds, (C,) each. All comparisons meet the same draws.
    """
    differences = _checked(differences)
    images, random = len(differences), np.random.default_rng(seed)
    shares = np.full(images, 1 / images)
    means = np.concatenate(
        [random.multinomial(images, shares, size=size) @ differences / images for size in _sizes(draws)]
    )
    tail = (1 - level) / 2
    low, high = np.quantile(means, [tail, 1 - tail], axis=0)
    return low, high


def seeds_p(differences: Sequence[float]) -> float:
    """Two-sided p of the paired t-test over seeds; NaN with fewer than two, 1 where all differences are zero."""
    values = np.asarray(differences, dtype=float)
    if len(values) < 2:
        return float("nan")
    if np.ptp(values) <= 1e-9 * np.abs(values).max():  # no spread at all: t is infinite, or 0/0
        return 1.0 if values[0] == 0 else 0.0
    return float(stats.ttest_1samp(values, 0.0).pvalue)


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction (1979) over a family: corrected p in the order given.

    The i-th smallest of m is multiplied by m - i + 1, made no smaller than those before it, and at most 1. NaN, a test
    that could not be made, stays NaN and does not count to the family.
    """
    p = np.asarray(p, dtype=float)
    corrected = np.full(p.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(p))
    order = tested[np.argsort(p[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(p[order] * factors))
    return corrected


def letters(names: Sequence[str], apart: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Compact letters (Piepho 2004): two names share one unless they are `apart`.

    names: in the order of the letters, best first. Starts from one group of all and parts it at each pair; a group
    within another is dropped.
    """
    groups = [frozenset(names)]
    for one, other in apart:
        parted = [
            part
            for group in groups
            for part in ([group - {one}, group - {other}] if {one, other} <= group else [group])
        ]
        groups = [group for n, group in enumerate(parted) if not _within_another(group, n, parted)]
    groups.sort(key=lambda group: [name not in group for name in names])
    return {name: "".join(_letter(n) for n, group in enumerate(groups) if name in group) for name in names}


def _within_another(group: frozenset, place: int, groups: Sequence[frozenset]) -> bool:
    """Whether a group is part of another, or the same as an earlier one."""
    return any(group < other or (group == other and n < place) for n, other in enumerate(groups))


def _letter(number: int) -> str:
    return chr(ord("a") + number) if number < 26 else f"({number + 1})"


def _checked(differences: np.ndarray) -> np.ndarray:
    differences = np.asarray(differences, dtype=float)
    require(
        differences.ndim == 2 and len(differences) > 0,
        f"differences has shape {differences.shape}; expected (images, comparisons), at least one image",
    )
    require(bool(np.isfinite(differences).all()), "differences holds NaN or infinite numbers; expected finite ones")
    return differences


def _all_signs(images: int) -> Iterable[np.ndarray]:
    """All 2^I rows of signs, at once."""
    bits = np.arange(2**images)[:, None] >> np.arange(images) & 1
    yield 1.0 - 2.0 * bits


def _random_signs(images: int, flips: int, seed: int) -> Iterable[np.ndarray]:
    """`flips` rows of random signs, some at a time."""
    random = np.random.default_rng(seed)
    for size in _sizes(flips):
        yield 1.0 - 2.0 * random.integers(0, 2, size=(size, images), dtype=np.int8)


def _sizes(total: int) -> list[int]:
    """How many in each block."""
    return [min(BLOCK, total - first) for first in range(0, total, BLOCK)]


# Of a pair: both tests tell it apart, that over images alone, that over seeds alone, neither; too few seeds to ask.
APART, IMAGES, SEEDS, NOTHING, ONE_SEED = "apart", "apart on other images", "apart in other trainings", "–", "one seed"
COLUMNS = (
    "one", "other", "seeds", "images", "rsum_one", "rsum_other", "difference", "low", "high",
    "p_images", "p_seeds", "holm_images", "holm_seeds", "spread", "outcome",
)  # fmt: skip
Parts = Mapping[int, np.ndarray]  # seed -> (I,) what each image contributes to rsum


class Pair(NamedTuple):
    """Two cases by name; `one` is said to be ahead where the difference is above zero."""

    one: str
    other: str


def compare(cases: Mapping[str, Parts], pairs: Sequence[Pair], same_runs: bool = False) -> pd.DataFrame:
    """A row a pair, in the order given; the pairs are the family over which Holm corrects.

    cases: name -> each seed's contributions. Only seeds that both have count. same_runs: both cases of a pair are
    measured on the same trainings, so that a seed's share in both is no spread.

    Columns: one, other, seeds, images, rsum_one, rsum_other, difference, low, high (95 % over images), p_images (sign
    flips of the images' differences, averaged over the seeds), p_seeds (paired t), holm_images, holm_seeds, spread (the
    sum of both sample deviations over seeds; same_runs: twice that of the differences) and outcome: APART where both
    corrected p are below 0.05, the only claim; IMAGES or SEEDS where one is; NOTHING; or ONE_SEED.
    Raises InputError where a pair has no seed in common or the images differ in number.
    """
    rows = [_row(pair, cases[pair.one], cases[pair.other], same_runs) for pair in pairs]
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    images = {row["images"] for row in rows}
    require(len(images) == 1, f"the cases are measured on {sorted(images)} images; compare those of one test split")
    means = np.stack([row.pop("images_differences") for row in rows], axis=1)
    frame = pd.DataFrame(rows)
    frame["low"], frame["high"] = bootstrap_interval(means)
    frame["p_images"] = sign_flip_p(means)
    frame["holm_images"], frame["holm_seeds"] = holm(frame["p_images"]), holm(frame["p_seeds"])
    frame["outcome"] = [_outcome(row) for _, row in frame.iterrows()]
    return frame[list(COLUMNS)]


def _row(pair: Pair, one: Parts, other: Parts, same_runs: bool) -> dict:
    """What is told of a pair without the others."""
    seeds = sorted(set(one) & set(other))
    if not seeds:
        fail(f"{pair.one} and {pair.other} have no seed in common; train both with the same seeds")
    sizes = {len(parts[seed]) for parts in (one, other) for seed in seeds}
    require(len(sizes) == 1, f"{pair.one} and {pair.other} are measured on {sorted(sizes)} images; expected the same")
    first, second = (np.stack([parts[seed] for seed in seeds]) for parts in (one, other))
    sums, others = first.mean(axis=1), second.mean(axis=1)
    difference = sums - others
    several = len(seeds) > 1
    spread = (2 * difference.std(ddof=1) if same_runs else sums.std(ddof=1) + others.std(ddof=1)) if several else np.nan
    return {
        "one": pair.one,
        "other": pair.other,
        "seeds": len(seeds),
        "images": sizes.pop(),
        "rsum_one": sums.mean(),
        "rsum_other": others.mean(),
        "difference": difference.mean(),
        "p_seeds": seeds_p(difference),
        "spread": spread,
        "images_differences": (first - second).mean(axis=0),
    }


def _outcome(row: pd.Series) -> str:
    """What the corrected p of both tests allow to say."""
    if row["seeds"] < 2:
        return ONE_SEED
    images, seeds = row["holm_images"] < LEVEL, row["holm_seeds"] < LEVEL
    return APART if images and seeds else IMAGES if images else SEEDS if seeds else NOTHING
