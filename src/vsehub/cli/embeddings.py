"""What `rerank` and `diagnose` share: people's own embeddings opened, checked, measured, and the record of it."""

import logging
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf

from vsehub import __version__
from vsehub.checks import InputError, require, whole
from vsehub.criteria.parameters import parameters
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.data.vector_checks import Norms, look_through, same_space
from vsehub.data.vectors import VectorFile, open_vectors
from vsehub.files import write_json
from vsehub.metrics.positives import Positives
from vsehub.retrieval.measure import Measured, check_rules, measure
from vsehub.retrieval.names import Names, read_images
from vsehub.retrieval.output import PAGE, RESULT, Output
from vsehub.retrieval.parts import Parts
from vsehub.retrieval.record import figures, reference_kind
from vsehub.retrieval.shared_rows import refuse_shared
from vsehub.training.provenance import code_version, hardware, versions

log = logging.getLogger(__name__)

SCHEMA = 1


@dataclass(frozen=True)
class Given:
    """What the settings name, opened: the sides, what their rows are called, and which items answer which query."""

    queries: VectorFile
    items: VectorFile
    reference: VectorFile | None
    query_names: Names
    item_names: Names
    truth: Positives | None


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
        return instantiate(node)
    except Exception as error:  # Hydra wraps what a constructor raises
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, InputError):
                raise InputError(f"criterion {name}: {seen}") from error
            seen = seen.__cause__ or seen.__context__
        raise


def find(cfg: DictConfig, kind: str, criteria: Mapping[str, Any]) -> Found:
    """Open, check and measure what `cfg` names; everything that can be refused is, before the work begins."""
    began, started = time.perf_counter(), datetime.now(UTC).isoformat(timespec="seconds")
    for name in ("queries", "items"):
        require(not OmegaConf.is_missing(cfg, name), f"{name} is not set; give {name}=FILE, vectors in rows")
    whole("k", cfg.k)
    require(isinstance(cfg.seed, int), f"seed is {cfg.seed!r}; expected a whole number")
    device = chosen_device(cfg.device)
    out = Output(cfg.out, cfg.overwrite)
    given = opened(cfg, criteria)
    check_rules(criteria, given.reference is not None, len(given.queries), len(given.items), cfg.k)
    parts = Parts(out.parts, work_settings(cfg, given, criteria, device), cfg.overwrite)

    checking = time.perf_counter()
    sides = {"queries": given.queries, "items": given.items, "reference": given.reference}
    described = {
        name: describe(side, look_through(side, progress=True)) for name, side in sides.items() if side is not None
    }
    shared = 0 if given.reference is None else refuse_shared(given.queries, given.reference)
    looked = time.perf_counter() - checking
    measured = measure(
        given.queries, given.items, criteria, given.reference, cfg.k, given.truth, parts, device, progress=True
    )
    record = {
        "schema": SCHEMA,
        "kind": kind,
        "vsehub": __version__,
        "command": " ".join(sys.argv),
        "versions": versions(),
        "git": code_version(),
        "hardware": hardware(),
        "started": started,
        "seconds": {"look_through": looked, **measured.seconds},
        "queries": described["queries"],
        "items": described["items"],
        "reference": describe_reference(given, criteria, described.get("reference"), shared),
        "k": cfg.k,
        "truth": describe_truth(cfg.truth, given.truth),
        **figures(measured, criteria, given.reference is not None, given.query_names, given.item_names, cfg.seed),
        "index": None,
    }
    return Found(given, measured, record, out, parts, began)


def finish(found: Found) -> list[str]:
    """Write the page and, last, the record; remove the parts. Returns the names of what was written."""
    from vsehub.report.embeddings import write_embeddings_report

    found.record["seconds"]["total"] = time.perf_counter() - found.began
    write_embeddings_report(found.record, found.out.folder)
    write_json(found.out / RESULT, found.record)
    found.parts.remove()
    return [RESULT, PAGE]


def opened(cfg: DictConfig, criteria: Mapping[str, Any]) -> Given:
    """The files that the settings name; InputError where one cannot be read or they do not fit each other."""
    queries = open_vectors(str(cfg.queries), "queries", normalize=cfg.normalize)
    items = open_vectors(str(cfg["items"]), "items", normalize=cfg.normalize)
    reference = opened_reference(cfg, criteria, queries)
    same_space(queries, items, reference)
    if (queries.fingerprint(), queries.shape) == (items.fingerprint(), items.shape):
        log.warning("queries and items are the same vectors: each finds itself first, which counts as any other hit")
    require(cfg.k <= len(items), f"k is {cfg.k}; expected at most {len(items)}, the number of items")
    images = None if cfg.item_images is None else read_images(str(cfg.item_images), "item_images")
    query_names = Names("queries", len(queries), *names(cfg.query_ids, cfg.query_labels, "query", queries))
    item_names = Names("items", len(items), *names(cfg.item_ids, cfg.item_labels, "item", items), images)
    truth = None
    if cfg.truth is not None:
        sizes = (len(queries), len(items))
        pairs = read_truth(str(cfg.truth), *sizes, query_names.ids, item_names.ids)
        truth = Positives.from_pairs(*pairs, *sizes, complete=False)
    return Given(queries, items, reference, query_names, item_names, truth)


def opened_reference(cfg: DictConfig, criteria: Mapping[str, Any], queries: VectorFile) -> VectorFile | None:
    """The reference queries, None where none are given or nobody looks at them."""
    if cfg.reference is None:
        return None
    if not any(rule.needs_reference or rule.matching is not None for rule in criteria.values()):
        log.warning("reference is not read: nothing here takes anything from other queries")
        return None
    reference = open_vectors(str(cfg.reference), "reference", normalize=cfg.normalize)
    require(
        Path(reference.path).resolve() != Path(queries.path).resolve(),
        f"reference: {reference.path} is the queries' own file. Leave reference out: the queries themselves are then "
        "taken (transductive), and the record says so",
    )
    return reference


def names(ids: str | None, labels: str | None, side: str, vectors: VectorFile) -> tuple[list[str] | None, ...]:
    """The ids and the labels of a side: those in the files that are named, else the ids that the vectors bring."""
    return (
        vectors.ids if ids is None else read_ids(str(ids), f"{side}_ids"),
        None if labels is None else read_labels(str(labels), f"{side}_labels"),
    )


def chosen_device(name: str) -> torch.device:
    """ "auto" is the GPU where there is one; InputError for what is no device here."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(1, device=str(name)).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(f"device is {name!r}, which is not to be had here; give auto, cpu or cuda") from error


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


def identity(vectors: VectorFile) -> list:
    """What tells a file of vectors from others and from what it was: its sample's hash, its size, its last change."""
    file = Path(vectors.path)
    stat = (file if file.exists() else Path(vectors.path.rpartition("::")[0])).stat()
    return [vectors.fingerprint(), *vectors.shape, stat.st_size, stat.st_mtime_ns]


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
