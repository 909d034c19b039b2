"""A comparison of rankings from opened inputs to its record: choose, look through, measure, record."""

import logging
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol

from vsehub import __version__
from vsehub.checks import fail
from vsehub.criteria.nns import NearestNeighbor
from vsehub.io.command import typed_command
from vsehub.io.outputs import Output
from vsehub.io.progress import stage
from vsehub.io.provenance import code_version, hardware, versions
from vsehub.io.records import EMBEDDINGS
from vsehub.rerank.choose import Tuning, choice_record, choose_for
from vsehub.rerank.engines import Engine
from vsehub.rerank.gains import gained
from vsehub.rerank.inputs import Inputs
from vsehub.rerank.measure import PLAIN, Measured, Ranked, check_criteria, measure
from vsehub.rerank.record import health, record
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)


class Workplace(Protocol):
    """Where a comparison is computed: `engines.Local` or `ray.Cluster`."""

    def require(self, criteria: Mapping[str, Any], sides: Sides) -> None:
        """Raise InputError for what cannot be computed there, before anything is started."""

    def started(self) -> AbstractContextManager[tuple[Engine, dict[str, Any]]]:
        """The engine, and its part of a record."""


@dataclass(frozen=True)
class Job:
    """What a comparison needs besides inputs and criteria.

    command: its name. out: the folder of its files. k: the depth of the lists. tuning: the queries by which an `Auto`
    chooses, else None. began: the start, by `time.perf_counter`.
    """

    command: str
    out: Output
    where: Workplace
    k: int = 10
    seed: int = 0
    tuning: Tuning | None = None
    began: float = field(default_factory=time.perf_counter)


class Served(NamedTuple):
    """A ranking that an index can hold: what was measured, its part of the record, and its criterion."""

    ranked: Ranked
    record: dict[str, Any]
    criterion: Any


@dataclass(frozen=True)
class Comparison:
    """Measured rankings under `criteria`, and their record. began: the start, by `time.perf_counter`."""

    criteria: Mapping[str, Any]
    inputs: Inputs
    measured: Measured
    record: dict[str, Any]
    began: float

    @property
    def served(self) -> "Served":
        """The last ranking."""
        criterion = [NearestNeighbor(), *self.criteria.values()][-1]
        return Served(self.measured.rankings[-1], self.record["rankings"][-1], criterion)

    def require_unchanged(self) -> None:
        """Raise InputError if a file of vectors has changed since it was opened."""
        changed = self.inputs.changed()
        if changed:
            fail(
                f"{', '.join(map(str, changed))} changed while being read, so the result cannot be used. Run the "
                "command again when no other program writes to it"
            )


@contextmanager
def compared(inputs: Inputs, criteria: Mapping[str, Any], job: Job) -> Iterator[Comparison]:
    """The measured plain ranking and those under `criteria`. All checks come before the measuring.

    This process holds the output folder until the block ends.
    """
    started = datetime.now(UTC).isoformat(timespec="seconds")
    check_criteria(criteria, inputs.sides, job.k)
    job.where.require({} if job.tuning else criteria, inputs.sides)
    with job.out.held(), job.where.started() as (engine, named):
        stage(log, f"looking through {len(inputs.sides.queries):,} queries and {len(inputs.sides.items):,} items")
        checking = time.perf_counter()
        checked = inputs.check(engine.look_through)
        choosing = time.perf_counter()
        chosen = None
        if job.tuning is not None:
            (auto,) = criteria.values()
            choice, inputs = choose_for(auto, inputs, job.tuning, job.seed)
            chosen = auto, choice
            name, criterion = auto.untuned if choice is None else (choice.name, choice.criterion)
            criteria = {} if name == PLAIN else {name: criterion}
            job.where.require(criteria, inputs.sides)
        stage(log, f"ranking under {', '.join([PLAIN, *criteria])}")
        measuring = time.perf_counter()
        measured = measure(inputs.sides, criteria, job.k, engine, job.seed)
        written = {
            "schema": EMBEDDINGS.version,
            "kind": job.command,
            "vsehub": __version__,
            "command": typed_command(),
            "versions": versions(),
            "git": code_version(),
            "hardware": hardware(),
            "engine": named,
            "started": started,
            "seconds": {"look_through": choosing - checking, **measured.seconds},
            **({"precision": "bf16"} if engine.rounded else {}),
            **record(inputs, checked, measured, criteria, job.k, job.seed),
            "choice": None,
            "verdict": health(inputs, measured.rankings[0]),
            "index": None,
            "calibration": None,
        }
        found = Comparison(criteria, inputs, measured, written, job.began)
        if chosen is not None:
            written["seconds"]["choosing"] = measuring - choosing
            written["choice"] = choice_record(*chosen, _gain(found))
        found.require_unchanged()
        yield found


def _gain(found: Comparison) -> dict[str, float] | None:
    """The gain in R@1 of the criterion over plain search; None where no answers are known."""
    positives, rankings = found.inputs.sides.positives, found.measured.rankings
    return None if positives is None else gained(rankings[0].positions, rankings[-1].positions, positives)
