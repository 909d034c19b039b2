"""A comparison of rankings from opened inputs to its record: choose, look through, measure, record."""

import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import numpy as np
import torch

from vsehub import __version__
from vsehub.checks import fail, require
from vsehub.criteria.auto import Auto
from vsehub.criteria.choose import LEAST, Choice, choose
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.vectors.embeddings import look_through
from vsehub.io.address import typed_command
from vsehub.io.progress import stage
from vsehub.io.provenance import code_version, hardware, versions
from vsehub.io.records import EMBEDDINGS
from vsehub.metrics.positives import Positives
from vsehub.ranking.engines import Engine
from vsehub.ranking.inputs import ALLOWED, Inputs, shared_rows
from vsehub.ranking.measure import PLAIN, Measured, check_criteria, measure
from vsehub.ranking.record import health, record


def choose_for(auto: Auto, inputs: Inputs, seed: int = 0) -> tuple[Choice | None, Inputs]:
    """The choice for opened inputs, None if no answers are known; and the inputs without the answers used for choosing.

    Raises InputError if there are too few queries to choose by, or if they are also measured.
    """
    sides = inputs.sides
    if inputs.tuning is not None:
        asked, positives = inputs.tuning
        look_through(asked)
        shared = shared_rows(sides.queries, asked)
        require(
            shared <= ALLOWED * len(sides.queries),
            f"tune_queries: {shared} of the {len(sides.queries)} queries that are ranked are in {asked} bit for bit: "
            "they would be measured by what was chosen for them. Leave them out of either, or leave out tune_queries: "
            "a part of the queries with truth is then kept for choosing",
        )
        return choose(auto, asked, positives, sides.items, sides.reference, seed), inputs
    if sides.positives is None:
        return None, inputs
    first, second = halves(sides.positives, auto.share, seed)
    choice = choose(auto, sides.queries, first, sides.items, sides.reference, seed)
    known = int((first.counts > 0).sum())
    return replace(choice, set_aside=known), replace(inputs, sides=replace(sides, positives=second))


def halves(positives: Positives, share: float, seed: int) -> tuple[Positives, Positives]:
    """Two sets of true pairs: those of a random share of the queries with a positive, and those of the other queries.

    share: of the first set, drawn by seed. Raises InputError where either part has fewer than `LEAST` queries.
    """
    known = positives.counts.nonzero().flatten()
    count = round(share * len(known))
    if min(count, len(known) - count) < LEAST:
        fail(
            f"truth knows the answers of {len(known)} queries, of which {count} would be chosen by and "
            f"{len(known) - count} measured; criterion=auto needs at least {LEAST} of each. Give more, or tune_queries "
            "and tune_truth, name a criterion, or leave truth out: then the default is taken"
        )
    drawn = known[torch.from_numpy(np.random.default_rng(seed).permutation(len(known))[:count])]
    first = torch.zeros(positives.queries, dtype=torch.bool)
    first[drawn] = True
    kept = first[positives.query]
    both = [
        Positives.from_pairs(positives.query[one], positives.item[one], positives.queries, positives.items, False)
        for one in (kept, ~kept)
    ]
    return both[0], both[1]


def choice_record(auto: Auto, choice: Choice | None, gain: dict[str, float] | None) -> dict[str, Any]:
    """The choice in plain values; without a choice, the criterion that was used instead.

    gain: of the criterion over plain search.
    """
    if choice is None:
        name, criterion = auto.untuned
        return {"criterion": name, "parameters": criterion.parameters(), "queries": 0, "gain": gain}
    told = {"criterion": choice.name, "parameters": choice.criterion.parameters()}
    counts = {name: getattr(choice, name) for name in ("queries", "folds", "items", "reference", "set_aside")}
    return told | counts | {"tried": [asdict(one) for one in choice.tried], "gain": gain}


log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """Measured rankings, the plain one and those under `criteria`, and their record.

    began: the start, by `time.perf_counter`.
    """

    criteria: Mapping[str, Any]
    inputs: Inputs
    measured: Measured
    record: dict[str, Any]
    began: float

    @property
    def criterion(self) -> Any:
        """That of the last ranking."""
        return [NearestNeighbor(), *self.criteria.values()][-1]

    def require_unchanged(self) -> None:
        """Raise InputError if a file of vectors has changed since it was opened."""
        changed = self.inputs.changed()
        if changed:
            fail(
                f"{', '.join(map(str, changed))} changed while being read, so the result cannot be used. Run the "
                "command again when no other program writes to it"
            )


def compared(
    command: str, inputs: Inputs, criteria: Mapping[str, Any], k: int, engine: Engine, seed: int = 0
) -> Comparison:
    """The measured plain ranking and those under `criteria`, or under what an `Auto` chooses. All checks come first.

    command: the name of the command, for the record. k: the depth of the lists.
    """
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    auto = next((one for one in criteria.values() if isinstance(one, Auto)), None)
    check_criteria(criteria, inputs.sides, k)
    engine.require({} if auto else criteria, inputs.sides)
    stage(log, f"looking through {len(inputs.sides.queries):,} queries and {len(inputs.sides.items):,} items")
    checked, choice, seconds = inputs.check(engine.look_through), None, {}
    seconds["look_through"] = time.perf_counter() - began
    if auto is not None:
        choosing = time.perf_counter()
        choice, inputs = choose_for(auto, inputs, seed)
        name, criterion = auto.untuned if choice is None else (choice.name, choice.criterion)
        criteria = {} if name == PLAIN else {name: criterion}
        engine.require(criteria, inputs.sides)
        seconds["choosing"] = time.perf_counter() - choosing
    stage(log, f"ranking under {', '.join([PLAIN, *criteria])}")
    measured = measure(inputs.sides, criteria, k, engine)
    written = {
        "schema": EMBEDDINGS.version,
        "kind": command,
        "vsehub": __version__,
        "command": typed_command(),
        "versions": versions(),
        "git": code_version(),
        "hardware": hardware(),
        "engine": engine.told,
        "started": started,
        "seconds": seconds | measured.seconds,
        **record(inputs, checked, measured, criteria, k, seed),
        **health(inputs, measured),
    }
    chosen = {"choice": None if auto is None else choice_record(auto, choice, written["rankings"][-1]["gain"])}
    found = Comparison(criteria, inputs, measured, written | chosen, began)
    found.require_unchanged()
    return found
