"""What `rerank` and `diagnose` share: people's own embeddings opened, checked, measured, and the record of it."""

import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import torch
from omegaconf import DictConfig

from vsehub import __version__
from vsehub.checks import InputError, boolean, require, whole
from vsehub.cli.build import build
from vsehub.cli.own_files import Given, identity, opened, require_unchanged
from vsehub.criteria.parameters import parameters
from vsehub.data.vector_checks import Norms, look_through
from vsehub.data.vectors import VectorFile
from vsehub.files import alone, write_json
from vsehub.metrics.positives import Positives
from vsehub.outputs import Output
from vsehub.records import EMBEDDINGS
from vsehub.retrieval.measure import Measured, check_rules, measure
from vsehub.retrieval.parts import Parts
from vsehub.retrieval.record import figures, reference_kind
from vsehub.retrieval.shared_rows import refuse_shared
from vsehub.training.provenance import code_version, hardware, versions

RESULT, PAGE, RANKING, INDEX, USAGE = "result.json", "index.html", "ranking.parquet", "index.faiss", "USAGE.md"
PARTS = "parts"  # the unfinished work
FILES = {"diagnose": (RESULT, PAGE), "rerank": (RESULT, PAGE, RANKING, INDEX, USAGE)}
KINDS = {"diagnose": "a diagnosis", "rerank": "a reranking"}


@dataclass(frozen=True)
class Found:
    """What was measured, the record of it, and where it goes. began: when, by the clock of `time.perf_counter`."""

    given: Given
    measured: Measured
    record: dict[str, Any]
    out: Output
    parts: Parts
    began: float


def built(name: str, node: DictConfig) -> Any:
    """The criterion of a configuration node; what its constructor refuses comes as the InputError that it is."""
    try:
        return build("criterion", node)
    except InputError as error:
        raise InputError(f"criterion {name}: {error}") from error


@contextmanager
def find(cfg: DictConfig, kind: str, criteria: Mapping[str, Any]) -> Iterator[Found]:
    """Open, check and measure what `cfg` names; everything that can be refused is, before the work begins.

    The folder of the result is this process's alone until the block ends.
    """
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    whole("k", cfg.k)
    boolean("normalize", cfg.normalize, or_none=True)
    require(isinstance(cfg.seed, int) and cfg.seed >= 0, f"seed is {cfg.seed!r}; expected a whole number from 0 up")
    device, out = chosen_device(cfg.device), Output(cfg.out, KINDS[kind], FILES[kind], cfg.overwrite)
    given = opened(cfg, criteria)
    inductive = given.reference is not None
    check_rules(criteria, inductive, len(given.queries), len(given.items), cfg.k)
    with alone(out.folder, "writing"):
        out = Output(cfg.out, KINDS[kind], FILES[kind], cfg.overwrite)  # another process may have finished it
        parts = Parts(out / PARTS, work_settings(cfg, given, criteria, device), cfg.overwrite)

        checking = time.perf_counter()
        sides = {name: side for name, side in vars(given).items() if isinstance(side, VectorFile)}
        described = {name: describe(side, look_through(side, progress=True)) for name, side in sides.items()}
        shared = refuse_shared(given.queries, given.reference) if inductive else 0
        measuring = time.perf_counter()
        measured = measure(
            given.queries, given.items, criteria, given.reference, cfg.k, given.truth, parts, device, progress=True
        )
        # What an earlier run found took time as well.
        began -= max(0.0, sum(measured.seconds.values()) - (time.perf_counter() - measuring))
        record = {
            **{"schema": EMBEDDINGS.version, "kind": kind, "vsehub": __version__, "command": " ".join(sys.argv)},
            **{"versions": versions(), "git": code_version(), "hardware": hardware(), "started": started},
            "seconds": {"look_through": measuring - checking, **measured.seconds},
            "queries": described["queries"],
            "items": described["items"],
            "reference": describe_reference(given, criteria, described.get("reference"), shared),
            "k": cfg.k,
            "truth": describe_truth(cfg.truth, given.truth),
            **figures(measured, criteria, inductive, given.query_names, given.item_names, cfg.seed),
            "index": None,
        }
        require_unchanged(given, parts)
        yield Found(given, measured, record, out, parts, began)


def finish(found: Found) -> list[str]:
    """Write the page and, last, the record; remove the parts. Returns the names of what was written.

    Raises InputError, and leaves no record, where a file of vectors has changed since it was opened.
    """
    from vsehub.report.embeddings import write_embeddings_report

    try:
        require_unchanged(found.given, found.parts)
    except InputError:
        found.out.begin(())  # which takes the ranking away again
        raise
    found.record["seconds"]["total"] = time.perf_counter() - found.began
    write_embeddings_report(found.record, found.out.folder)
    write_json(found.out / RESULT, found.record)
    found.parts.remove()  # before the folder passes for finished: a kill in between leaves nothing lying about
    found.out.finish()
    return [RESULT, PAGE]


def chosen_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one; InputError for what is no device here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        tried = torch.zeros(1, device=str(name))
        tried.cpu()  # of "meta" nothing comes back
        return tried.device
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device is {name!r}, which is not available on this machine; give auto, cpu or cuda"
        ) from error


def work_settings(cfg: DictConfig, given: Given, criteria: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """All that the found lists depend on: a command that differs in none of it may go on with them."""
    return {
        "vsehub": __version__,
        "queries": identity(given.queries),
        "items": identity(given.items),
        "reference": None if given.reference is None else identity(given.reference),
        "normalize": cfg.normalize,
        "criteria": {name: [type(rule).__name__, repr(parameters(rule))] for name, rule in criteria.items()},
        "device": device.type,
    }


def describe(vectors: VectorFile, norms: Norms) -> dict[str, Any]:
    """A side in the record."""
    return {
        "path": vectors.path,
        "rows": len(vectors),
        "dim": vectors.shape[1],
        "dtype": str(vectors.dtype).removeprefix("torch."),
        "fingerprint": vectors.fingerprint(),
        "norms": asdict(norms),
    }


def describe_reference(
    given: Given, criteria: Mapping[str, Any], described: dict[str, Any] | None, shared: int
) -> dict[str, Any]:
    """Whose scores the criteria saw, in the record."""
    kinds = {reference_kind(rule, described is not None) for rule in criteria.values()} - {"none"}
    if not kinds:
        return {"kind": "none", "set": "none"}
    if described is None:
        return {"kind": "transductive", "set": "the queries themselves", "rows": len(given.queries)}
    return {"kind": "inductive", "set": described["path"], **described, "queries_in_it": shared}


def describe_truth(path: str | None, truth: Positives | None) -> dict[str, Any] | None:
    """Which pairs the figures are measured by, in the record."""
    if truth is None:
        return None
    measured = int((truth.counts > 0).sum())
    return {
        "path": str(path),
        "pairs": len(truth.query),
        "measured_queries": measured,
        "queries_without": truth.queries - measured,
    }
