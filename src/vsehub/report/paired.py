"""Cases compared pair by pair on the same images and seeds: effect, interval, tests corrected over the family."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from vsehub.checks import fail, require
from vsehub.report.significance import LEVEL, bootstrap_interval, holm, seeds_p, sign_flip_p

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
