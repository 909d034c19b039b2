"""Tuning: choosing a criterion's settings, or the criterion itself, on the validation split."""

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import require
from vsehub.criteria.base import Criterion
from vsehub.criteria.choose import PLAIN, Auto, choose_row, try_all
from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.evaluate import folds_of, measure_folds
from vsehub.evaluation.protocols import Protocol
from vsehub.evaluation.scores import DIRECTIONS
from vsehub.io.progress import bar
from vsehub.metrics.occurrences import KS
from vsehub.models.encode import EncodedSplit
from vsehub.types import Similarity

log = logging.getLogger(__name__)

Settings = dict[str, Any]
Measure = Callable[[Settings], dict[str, float]]


class Tuned(NamedTuple):
    """The result of tuning.

    criterion: the criterion with the chosen settings. parameters: the settings, with the "criterion" if that was chosen
    too. rsum: its value on validation. tried: all settings with their rsum, in order.
    """

    criterion: Criterion
    parameters: Settings
    rsum: float
    tried: list[tuple[Settings, float]]


def tune(
    criterion: Criterion,
    split: EncodedSplit,
    similarity: Similarity,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
    only_matching: bool = False,
) -> Tuned:
    """The criterion's settings with the largest rsum on the validation `split`, chosen from its GRID.

    reference: as in `evaluate`. Of settings with equal rsum, the first in the grid is chosen. A matching criterion gets
    a value for each k of `KS`: the value with the largest sum of R@k over both directions (EMNLP table 4). In a chain,
    the matching is tuned anew for each setting of the correction; only_matching: the correction keeps its settings.
    Logs a warning where plain search has a larger rsum than the chosen settings. Raises InputError if there are no
    settings to choose.
    """
    corrections = [{}] if only_matching else criterion.correction.grid()
    matchings = criterion.matching.grid() if criterion.matching is not None else [{}]
    require(
        len(corrections) * len(matchings) > 1,
        f"{type(criterion).__name__} has no such settings to tune; leave tune out",
    )
    folds = folds_of(split, similarity, protocol, reference)

    def measure(settings: Settings) -> dict[str, float]:
        return measure_folds(folds, criterion.with_parameters(**settings), reference is not None).metrics

    tried = [_best_matching(settings, matchings, measure) for settings in bar("tuning", corrections)]
    best, rsum = max(tried, key=lambda pair: pair[1])
    tuned = criterion.with_parameters(**best)
    plain = measure_folds(folds, NearestNeighbor(), inductive=False).metrics["rsum"]
    if plain > rsum:
        log.warning(
            "on val plain search has an rsum of %.1f, but %s, the best of %d settings, %.1f: take criterion=nns, or "
            "criterion=auto, which chooses among criteria",
            plain,
            tuned,
            len(tried),
            rsum,
        )
    return Tuned(tuned, tuned.parameters(), rsum, tried)


def _best_matching(settings: Settings, matchings: list[Settings], measure: Measure) -> tuple[Settings, float]:
    """A correction's settings together with the matching's best ones for each k, and their rsum."""
    if matchings == [{}]:
        return settings, measure(settings)["rsum"]
    (name,) = matchings[0]  # every setting of a matching's grid has the same single key
    by_value = {choice[name]: measure(settings | choice) for choice in matchings}
    chosen, total = {}, 0.0
    for k in KS:
        sums = {value: sum(metrics[f"{side}/r{k}"] for side in DIRECTIONS) for value, metrics in by_value.items()}
        chosen[k] = max(sums, key=sums.__getitem__)
        total += sums[chosen[k]]
    return settings | {name: chosen}, total


def choose(
    auto: Auto,
    split: EncodedSplit,
    similarity: Similarity,
    protocol: Protocol,
    reference: EncodedSplit | None = None,
) -> Tuned:
    """The candidate of `auto` that is chosen on the validation `split`, by each image's part of rsum.

    The rule is `criteria.choose.choose_row`. Candidates that cannot take these scores are left out. reference: as in
    `evaluate`. The settings tried name the criterion too. Raises InputError where no correction can take the scores.
    """
    folds = folds_of(split, similarity, protocol, reference)
    references = min(len(split.images), len(split.texts)) if reference is None else len(reference.images)
    candidates = auto.with_grids(references)
    results = try_all(
        candidates,
        lambda criterion: measure_folds(folds, criterion, reference is not None and criterion.needs_reference),
    )
    applied = [candidate for candidate, result in zip(candidates, results, strict=True) if result is not None]
    evaluations = [result for result in results if result is not None]
    names = [name for name, _ in applied]
    require(
        len(names) > 1 and names[0] == PLAIN,
        "no criterion of auto can be applied to these scores; name one, to see what is wrong",
    )
    tried = [
        ({"criterion": name, **criterion.parameters()}, evaluation.metrics["rsum"])
        for (name, criterion), evaluation in zip(applied, evaluations, strict=True)
    ]
    best = choose_row(np.array([evaluation.contributions for evaluation in evaluations]))
    _, criterion = applied[best]
    parameters, rsum = tried[best]
    return Tuned(criterion, parameters, rsum, tried)
