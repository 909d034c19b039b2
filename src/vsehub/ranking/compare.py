"""A comparison of rankings from opened inputs to its record: look through, choose, measure."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Correction, ItemBias, small_reference_warning
from vsehub.criteria.choose import Auto, Choice, choose
from vsehub.positives import Positives
from vsehub.ranking.gains import r1_gain
from vsehub.ranking.inputs import Inputs
from vsehub.ranking.measure import PLAIN, Measured, check_criteria, measure
from vsehub.ranking.record import Comparison, make_comparison

log = logging.getLogger(__name__)


def choose_for(auto: Auto, inputs: Inputs, seed: int = 0) -> Choice | None:
    """The choice for opened inputs, by their tuning queries or else by all known answers; None without these.

    Raises InputError if there are too few queries to choose by.
    """
    sides = inputs.sides
    if inputs.tuning is not None:
        return replace(choose(auto, *inputs.tuning, sides.items, sides.reference, seed), others=[])
    if sides.positives is None:
        return None
    return choose(auto, sides.queries, sides.positives, sides.items, sides.reference, seed)


def near_chance(positives: Positives, lists: Tensor) -> str | None:
    """A warning if the plain lists (Q, k) are hardly better than random lists; otherwise None.

    They must answer at least twice the share of queries that random lists answer or, where that share is above a third,
    the mean of it and 100 %.
    """
    counts, k = positives.counts[positives.counts > 0].double(), lists.shape[1]
    answered = 100 * int(positives.hits(lists).any(dim=1).sum()) / len(counts)
    chance = 100 * float((1 - (1 - k / positives.items) ** counts).mean())
    if answered >= min(2 * chance, (chance + 100) / 2):
        return None
    return (
        f"truth: the {k} nearest items answer {answered:.1f} % of its queries, {chance:.1f} % by chance. Are ids "
        "shifted by a row or in another order than their rows, columns swapped, or the sides embedded by different "
        "models?"
    )


def choice_record(name: str, criterion: Correction, choice: Choice | None) -> dict[str, Any]:
    """The criterion and how it was chosen, in plain values; "queries" is 0 without a choice.

    "added_to": whether `vsehub add` can compute the terms of a new item without the other items.
    """
    added_to = isinstance(criterion, ItemBias) and criterion.items_are_independent
    record = {"criterion": name, "parameters": criterion.parameters(), "added_to": added_to, "queries": 0}
    if choice is not None:
        record |= {key: value for key, value in vars(choice).items() if isinstance(value, int | float)}
        record["tried"] = [vars(trial) for trial in choice.tried]
    return record


def held_out_gain(
    measured: Measured, name: str, others: Mapping[str, tuple[Correction, Tensor]], positives: Positives
) -> dict[str, float]:
    """The gain of a choice over plain search, where no query is ranked by a criterion that its own answer chose.

    name: the chosen ranking. others: the further rankings, with the rows of the queries that they were chosen for.
    """
    first_items = {ranking.name: ranking.first_items for ranking in measured.rankings}
    chosen = first_items[name].clone()
    for other, (_, rows) in others.items():
        # `measure` omits plain search, which may be the choice for some queries.
        chosen[rows] = first_items.get(other, first_items[PLAIN])[rows]
    return r1_gain(first_items[PLAIN], chosen, positives)


def compare_vectors(
    command: str, inputs: Inputs, criteria: Mapping[str, Any], k: int, device: torch.device | None, seed: int = 0
) -> Comparison:
    """The measured plain ranking and those under `criteria`, or under what an `Auto` chooses. All checks come first.

    command: the name of the command, for the record. k: the depth of the lists. device: see `measure`. Raises
    InputError if a file of vectors changed meanwhile.
    """
    began = time.perf_counter()
    references = len(inputs.sides.reference_queries)
    check_criteria(criteria, inputs.sides, k)
    log.info("looking through %d queries and %d items", len(inputs.sides.queries), len(inputs.sides.items))
    norms = inputs.check()
    seconds = {"look_through": time.perf_counter() - began}
    auto = next((criterion for criterion in criteria.values() if isinstance(criterion, Auto)), None)
    written_choice, others = None, dict[str, tuple[Correction, Tensor]]()
    if auto is not None:
        choosing = time.perf_counter()
        choice = choose_for(auto, inputs, seed)
        name, criterion = auto.untuned(references) if choice is None else (choice.name, choice.criterion)
        criteria = {} if name == PLAIN else {name: criterion}
        # Rankings that only `held_out_gain` uses, under names that no criterion has.
        others = {} if choice is None else {f"others {number}": pair for number, pair in enumerate(choice.others)}
        written_choice = choice_record(name, criterion, choice)
        seconds["choosing"] = time.perf_counter() - choosing
    for criterion in criteria.values():
        inputs.warn(small_reference_warning(criterion, references))
    log.info("ranking under %s", ", ".join([PLAIN, *criteria]))
    all_criteria = {**criteria, **{name: criterion for name, (criterion, _) in others.items()}}
    measured = measure(inputs.sides, all_criteria, k, device)
    if written_choice is not None and inputs.sides.positives is not None:
        written_choice["gain"] = held_out_gain(measured, written_choice["criterion"], others, inputs.sides.positives)
        measured = replace(measured, rankings=measured.rankings[: 1 + len(criteria)])
    if inputs.sides.positives is not None:
        inputs.warn(near_chance(inputs.sides.positives, measured.rankings[0].positions))
    changed = inputs.changed()
    require(not changed, f"{', '.join(map(str, changed))} changed while being read; run the command again")
    measured = replace(measured, seconds=seconds | measured.seconds)
    return make_comparison(command, inputs, measured, criteria, k, seed, began, norms, written_choice)
