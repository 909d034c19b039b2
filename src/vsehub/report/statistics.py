"""The one rule for "A beats B": paired tests over test images and over seeds, corrected over a family.

rsum is a mean over test images of what each contributes (the "contributions" of an evaluation record), so an image with
its captions is the unit that is drawn. Random signs of the images' differences show what chance would make of them
if the two cases were exchangeable on every image; the t-test over seeds asks the same of other trainings. Only where
both corrected p are below 0.05 is one case said to beat the other.
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
BLOCK = 500  # flips or draws at a time
LEVEL = 0.05
FEWEST_SEEDS = 3  # with two, a t-test has one degree of freedom and a deviation of two numbers


def sign_flip_p(differences: np.ndarray, flips: int = FLIPS, seed: int = 0) -> np.ndarray:
    """Two-sided p of the mean paired difference under random signs, one for each comparison.

    `scipy.stats.permutation_test` gives the same p and took 240 times as long a flip: here all comparisons share one
    product of signs and differences.

    Args:
        differences: (I, C), an image a row, a comparison a column.
        flips: how many random flips are drawn for more than 12 images; fewer images are enumerated.

    Returns:
        (C,): the share of the flips whose absolute mean reaches the observed one. The observed one counts among the
        random flips (Phipson and Smyth 2010), so that no p is 0. All differences zero: p = 1.

    Raises:
        InputError: differences is not a such matrix, is empty or holds values that are not finite.
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

    `scipy.stats.bootstrap` gives the same interval; of 28 comparisons on 5,000 images it took 27 s where one product of
    counts and differences takes 3.

    Args:
        differences: (I, C), an image a row, a comparison a column; all comparisons meet the same draws.

    Returns:
        The lower and the upper bounds, (C,) each.
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
        differences: one value a seed, (S,).
        step: the smallest amount by which the metric can change. The sample standard deviation is taken to be no
            smaller, so that seeds that happen to agree are not infinitely sure. rsum changes in steps of 100 / number
            of queries; `compare` takes 100 / I, that of the images, which are the fewer queries.
    """
    values = np.asarray(differences, dtype=float)
    require(step > 0, f"step is {step}; expected the smallest change of the metric, above 0")
    if len(values) < FEWEST_SEEDS:
        return float("nan")
    error = max(values.std(ddof=1), step) / np.sqrt(len(values))
    return float(2 * stats.t.sf(abs(values.mean()) / error, len(values) - 1))


def holm(p: Sequence[float]) -> np.ndarray:
    """Holm's step-down correction (1979) over a family: corrected p in the order given.

    The i-th smallest of m is multiplied by m - i + 1, made no smaller than those before it, and at most 1. NaN, a test
    that could not be made, stays NaN and does not count to the family.
    """
    values = np.asarray(p, dtype=float)
    corrected = np.full(values.shape, np.nan)
    tested = np.flatnonzero(~np.isnan(values))
    order = tested[np.argsort(values[tested], kind="stable")]
    factors = np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(values[order] * factors))
    return corrected


def letters(names: Sequence[str], apart: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Compact letters (Piepho 2004): two names share one unless they are `apart`.

    names: in the order of the letters, best first. Starts from one group of all and splits it at each pair; a group
    within another is dropped.
    """
    groups = [frozenset(names)]
    for one, other in apart:
        split = [
            part
            for group in groups
            for part in ([group - {one}, group - {other}] if {one, other} <= group else [group])
        ]
        groups = [group for n, group in enumerate(split) if not _within_another(group, n, split)]
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


# Of a pair: both tests find a difference, only that over images, only that over seeds, neither; too few seeds to ask.
APART, IMAGES, SEEDS, NOTHING = "apart", "apart on other images", "apart in other trainings", "–"
TOO_FEW = "too few seeds"
COLUMNS = (
    "one", "other", "seeds", "images", "rsum_one", "rsum_other", "difference", "low", "high",
    "p_images", "p_seeds", "holm_images", "holm_seeds", "outcome",
)  # fmt: skip
Parts = Mapping[int, np.ndarray]  # seed -> (I,), what each image contributes to rsum


class Pair(NamedTuple):
    """Two cases by name; `one` is ahead where the difference is above zero."""

    one: str
    other: str


def compare(cases: Mapping[str, Parts], pairs: Sequence[Pair]) -> pd.DataFrame:
    """Paired tests of a family of comparisons, over which Holm corrects: one row per pair, in the order given.

    Args:
        cases: name -> each seed's contributions. Only the seeds that both cases of a pair have count.

    Returns:
        The columns one, other, seeds, images, rsum_one, rsum_other, difference, low, high (95 % over images), p_images
        (sign flips of the images' differences, averaged over the seeds), p_seeds (paired t-test), holm_images,
        holm_seeds and outcome: APART where both corrected p are below 0.05, the only claim; IMAGES or SEEDS where one
        is; NOTHING; TOO_FEW with fewer than three seeds.

    Raises:
        InputError: a pair has no seed in common, or the images differ in number.
    """
    rows = [_row(pair, cases[pair.one], cases[pair.other]) for pair in pairs]
    if not rows:
        return pd.DataFrame(columns=list(COLUMNS))
    images = {row["images"] for row in rows}
    require(len(images) == 1, f"the cases are measured on {sorted(images)} images; compare those of one test split")
    means = np.stack([row.pop("images_differences") for row in rows], axis=1)
    frame = pd.DataFrame(rows)
    frame["low"], frame["high"] = bootstrap_interval(means)
    frame["p_images"] = sign_flip_p(means)
    return corrected(frame)


def corrected(family: pd.DataFrame) -> pd.DataFrame:
    """The rows of a family with holm_images, holm_seeds and outcome, from seeds, p_images and p_seeds."""
    holms = {name: holm(family[f"p_{name}"].to_numpy(dtype=float)) for name in ("images", "seeds")}
    family = family.assign(holm_images=holms["images"], holm_seeds=holms["seeds"])
    return family.assign(outcome=[_outcome(row) for _, row in family.iterrows()])[list(COLUMNS)]


def _row(pair: Pair, one: Parts, other: Parts) -> dict:
    """What is measured of a pair without the others."""
    seeds = sorted(set(one) & set(other))
    if not seeds:
        fail(f"{pair.one} and {pair.other} have no seed in common; train both with the same seeds")
    sizes = {len(parts[seed]) for parts in (one, other) for seed in seeds}
    require(len(sizes) == 1, f"{pair.one} and {pair.other} are measured on {sorted(sizes)} images; expected the same")
    images = sizes.pop()
    first, second = (np.stack([parts[seed] for seed in seeds]) for parts in (one, other))
    sums, others = first.mean(axis=1), second.mean(axis=1)
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


def _outcome(row: pd.Series) -> str:
    if row["seeds"] < FEWEST_SEEDS:
        return TOO_FEW
    images, seeds = row["holm_images"] < LEVEL, row["holm_seeds"] < LEVEL
    return APART if images and seeds else IMAGES if images else SEEDS if seeds else NOTHING
