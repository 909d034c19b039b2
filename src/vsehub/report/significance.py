"""Whether a difference in rsum would hold for other images, and for other trainings: paired tests, corrected.

rsum is a mean over test images of what each contributes (`evaluation.contributions`), so the image, its captions with
it, is the unit that is drawn. Flipping the signs of the images' differences tells what chance alone would make of them
if the two cases were exchangeable on every image; the t-test asks the same of the seeds.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy import stats

from vsehub.checks import require

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
