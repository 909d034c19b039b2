"""Tuning: choosing a criterion's settings on the validation split."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tqdm import tqdm

from vsehub.checks import require
from vsehub.criteria.base import Criterion
from vsehub.evaluation.encode import EncodedSplit
from vsehub.evaluation.evaluate import folds_of, measured
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.scores import DIRECTIONS
from vsehub.metrics.occurrences import KS
from vsehub.types import Similarity

Settings = dict[str, Any]
Measure = Callable[[Settings], dict[str, float]]


@dataclass(frozen=True)
class Tuned:
    """The result of tuning.

    criterion: with the chosen settings. rsum: its value on validation. tried: all settings with their rsum, in order.
    """

    criterion: Criterion
    rsum: float
    tried: list[tuple[Settings, float]]


def tune(
    criterion: Criterion,
    split: EncodedSplit,
    similarity: Similarity,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
    progress: bool = False,
) -> Tuned:
    """The criterion with the settings of its GRID that give the largest rsum on the validation `split`.

    reference: as in `evaluate`. Among equal values the first in the grid's order is chosen. A matching criterion gets
    one value for each k of `KS`, the one with the largest sum of both directions' R@k (EMNLP table 4); in a chain this
    is done for every setting of the correction. Raises InputError if the criterion has no settings.
    """
    require(criterion.tunable, f"{type(criterion).__name__} has no settings to tune; leave tune=true out")
    corrections = criterion.correction.grid()
    matchings = criterion.matching.grid() if criterion.matching is not None else [{}]
    folds = folds_of(split, similarity, protocol, reference)
    with tqdm(
        total=len(corrections) * len(matchings), desc="tuning", leave=False, disable=None if progress else True
    ) as bar:

        def measure(settings: Settings) -> dict[str, float]:
            bar.update()
            return measured(folds, criterion.with_parameters(**settings), reference is not None).metrics

        tried = [_best_matching(own, matchings, measure) for own in corrections]
    best, rsum = max(tried, key=lambda one: one[1])
    return Tuned(criterion.with_parameters(**best), rsum, tried)


def _best_matching(own: Settings, matchings: list[Settings], measure: Measure) -> tuple[Settings, float]:
    """The correction's settings with the matching's best settings for each k, and the rsum of both."""
    if matchings == [{}]:
        return own, measure(own)["rsum"]
    ((name, _),) = matchings[0].items()
    found = {choice[name]: measure(own | choice) for choice in matchings}
    chosen, total = {}, 0.0
    for k in KS:
        sums = {value: sum(metrics[f"{side}/r{k}"] for side in DIRECTIONS) for value, metrics in found.items()}
        chosen[k] = max(sums, key=sums.__getitem__)
        total += sums[chosen[k]]
    return own | {name: chosen}, total
