"""A comparison of rankings from opened inputs to its record: choose, look through, measure, record."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub import __version__
from vsehub.checks import require
from vsehub.criteria.auto import Auto
from vsehub.criteria.base import few
from vsehub.criteria.choose import Choice, choose
from vsehub.criteria.nns import NearestNeighbor
from vsehub.io.address import typed_command
from vsehub.io.provenance import code_version, hardware, versions
from vsehub.io.records import EMBEDDINGS
from vsehub.metrics.positives import Positives
from vsehub.ranking.inputs import Inputs
from vsehub.ranking.measure import PLAIN, Local, Measured, check_criteria, measure
from vsehub.ranking.record import record

log = logging.getLogger(__name__)


def choose_for(auto: Auto, inputs: Inputs, seed: int = 0) -> tuple[Choice | None, Inputs]:
    """The choice for opened inputs, None if no answers are known; and the inputs without the answers used for choosing.

    Raises InputError if there are too few queries to choose by.
    """
    sides = inputs.sides
    if inputs.tuning is not None:
        return choose(auto, *inputs.tuning, sides.items, sides.reference, seed), inputs
    if sides.positives is None:
        return None, inputs
    first, second = halves(sides.positives, auto.share, seed)
    choice = choose(auto, sides.queries, first, sides.items, sides.reference, seed)
    known = int((first.counts > 0).sum())
    return replace(choice, set_aside=known), replace(inputs, sides=replace(sides, positives=second))


def halves(positives: Positives, share: float, seed: int) -> list[Positives]:
    """Two sets of true pairs: those of a random share of the queries with a positive, and those of the other queries.

    share: share of the first set, drawn by seed. Raises InputError if either has no pairs.
    """
    known = positives.counts.nonzero().flatten()
    order = torch.from_numpy(np.random.default_rng(seed).permutation(len(known)))
    first = torch.isin(positives.query, known[order[: round(share * len(known))]])
    return [
        Positives.from_pairs(positives.query[one], positives.item[one], positives.queries, positives.items, False)
        for one in (first, ~first)
    ]


def near_chance(positives: Positives, lists: Tensor) -> str | None:
    """A warning if the plain lists (Q, k) answer fewer than twice the queries that lists drawn at random would.

    If that is most queries, fewer than halfway from there to all.
    """
    counts, k = positives.counts[positives.counts > 0].double(), lists.shape[1]
    found = 100 * int(positives.hits(lists).any(dim=1).sum()) / len(counts)
    chance = 100 * float((1 - (1 - k / positives.items) ** counts).mean())
    if found >= min(2 * chance, (chance + 100) / 2):
        return None
    return (
        f"truth: the {k} nearest items answer {found:.1f} % of its queries, {chance:.1f} % by chance. Are ids shifted "
        "by a row or in another order than their rows, columns swapped, or the sides embedded by different models?"
    )


def choice_record(auto: Auto, choice: Choice | None, gain: dict[str, float] | None) -> dict[str, Any]:
    """The choice in plain values; without a choice, the criterion that was used instead.

    gain: gain of the criterion over plain search.
    """
    name, criterion = auto.untuned if choice is None else (choice.name, choice.criterion)
    counts: dict[str, Any] = {"queries": 0}
    if choice is not None:
        counts = {key: value for key, value in vars(choice).items() if isinstance(value, int)}
        counts["tried"] = [vars(one) for one in choice.tried]
    return {"criterion": name, "parameters": criterion.parameters(), **counts, "gain": gain}


@dataclass(frozen=True)
class Comparison:
    """Measured rankings, the plain one first, and their record. criterion: criterion of the last ranking.

    began: the start, by `time.perf_counter`.
    """

    criterion: Any
    inputs: Inputs
    measured: Measured
    record: dict[str, Any]
    began: float


def compared(
    command: str, inputs: Inputs, criteria: Mapping[str, Any], k: int, engine: Local, seed: int = 0
) -> Comparison:
    """The measured plain ranking and those under `criteria`, or under what an `Auto` chooses. All checks come first.

    command: the name of the command, for the record. k: the depth of the lists. Raises InputError if a file of vectors
    changed meanwhile.
    """
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    check_criteria(criteria, inputs.sides, k)
    log.info("looking through %d queries and %d items", len(inputs.sides.queries), len(inputs.sides.items))
    norms = inputs.check(engine.look_through)
    seconds = {"look_through": time.perf_counter() - began}
    auto, choice = next((one for one in criteria.values() if isinstance(one, Auto)), None), None
    if auto is not None:
        choosing = time.perf_counter()
        choice, inputs = choose_for(auto, inputs, seed)
        name, criterion = auto.untuned if choice is None else (choice.name, choice.criterion)
        criteria = {} if name == PLAIN else {name: criterion}
        seconds["choosing"] = time.perf_counter() - choosing
    for criterion in criteria.values():
        inputs.warn(few(criterion, len(inputs.sides.seen)))
    log.info("ranking under %s", ", ".join([PLAIN, *criteria]))
    measured = measure(inputs.sides, criteria, k, engine)
    if inputs.sides.positives is not None:
        inputs.warn(near_chance(inputs.sides.positives, measured.rankings[0].positions))
    written = {
        "schema": EMBEDDINGS.version,
        "kind": command,
        "vsehub": __version__,
        "command": typed_command(),
        "versions": versions(),
        "git": code_version(),
        "hardware": hardware(),
        "engine": dict(engine.facts),
        "started": started,
        "seconds": seconds | measured.seconds,
        **record(inputs, norms, measured, criteria, k, seed),
    }
    written["choice"] = None if auto is None else choice_record(auto, choice, written["rankings"][-1]["gain"])
    changed = inputs.changed()
    require(not changed, f"{', '.join(map(str, changed))} changed while being read; run the command again")
    return Comparison([NearestNeighbor(), *criteria.values()][-1], inputs, measured, written, began)
