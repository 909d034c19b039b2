"""A comparison of rankings from opened inputs to its record: choose, look through, measure, record."""

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from vsehub import __version__
from vsehub.checks import fail
from vsehub.criteria.auto import Auto
from vsehub.criteria.nns import NearestNeighbor
from vsehub.io.command import typed_command
from vsehub.io.progress import stage
from vsehub.io.provenance import code_version, hardware, versions
from vsehub.io.records import EMBEDDINGS
from vsehub.rerank.choose import choice_record, choose_for
from vsehub.rerank.engines import Engine
from vsehub.rerank.inputs import Inputs
from vsehub.rerank.measure import PLAIN, Measured, check_criteria, measure
from vsehub.rerank.record import health, record

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

    command: the name of what asks, for the record. k: the depth of the lists.
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
    measured = measure(inputs.sides, criteria, k, engine, seed)
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
        **({"precision": "bf16"} if engine.rounded else {}),
        **record(inputs, checked, measured, criteria, k, seed),
        **health(inputs, measured),
    }
    chosen = {"choice": None if auto is None else choice_record(auto, choice, written["rankings"][-1]["gain"])}
    found = Comparison(criteria, inputs, measured, written | chosen, began)
    found.require_unchanged()
    return found
