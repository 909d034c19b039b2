"""The record of a comparison in plain values: the contents of result.json and of the page."""

import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from torch import Tensor

from vsehub.criteria.base import Criterion
from vsehub.criteria.nns import NearestNeighbor
from vsehub.data.truth import ALIGNED
from vsehub.data.vectors.paths import split_path
from vsehub.io.address import is_uri, masked
from vsehub.io.provenance import origin
from vsehub.io.records import EMBEDDINGS
from vsehub.machine import hardware
from vsehub.neighbors.vectors import sample_positions
from vsehub.ranking.gains import r1_gain
from vsehub.ranking.inputs import Inputs
from vsehub.ranking.measure import Measured, Ranked
from vsehub.ranking.verdict import hub_level, verdict

log = logging.getLogger(__name__)

EXAMPLES = 20
SHOWN_QUERIES = 3  # queries that the entry of a hub names


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


def make_comparison(
    command: str,
    inputs: Inputs,
    measured: Measured,
    criteria: Mapping[str, Any],
    k: int,
    seed: int,
    began: float,
    norms: Mapping[str, Mapping[str, float]] | None = None,
    choice: Mapping[str, Any] | None = None,
) -> Comparison:
    """Measured rankings with their record. norms: see `Inputs.check`. choice: see `compare.choice_record`."""
    started = datetime.now(UTC) - timedelta(seconds=time.perf_counter() - began)
    files = _files(inputs, norms or {})
    queries, truth, path = len(inputs.sides.queries), inputs.sides.positives, inputs.settings.get("truth")
    pairs = None
    if truth is not None:
        answered = int((truth.counts > 0).sum())
        pairs = {
            "path": masked(path) if path else None,
            "pairs": len(truth.query),
            "measured_queries": answered,
            "queries_without": queries - answered,
        }
    rankings = measurements(measured, criteria, inputs, seed)
    record = {
        "schema": EMBEDDINGS.version,
        "kind": command,
        **origin(),
        "hardware": hardware(),
        "started": started.isoformat(timespec="seconds"),
        "seconds": measured.seconds,
        "scores": files.get("scores"),
        "queries": files.get("queries", {"rows": queries} | ({"within": True} if inputs.sides.exclude_self else {})),
        "items": files.get("items", {"rows": len(inputs.sides.items)}),
        **_references(inputs, files, criteria.values()),
        "warnings": inputs.warnings,
        "inputs": {name: with_absolute_path(value) for name, value in inputs.settings.items()},
        "k": k,
        "truth": pairs,
        **rankings,
        "index": None,
        "calibration": None,
        "verdict": rankings["rankings"][0]["verdict"],
        "choice": choice,
    }
    criterion = list(criteria.values())[-1] if criteria else NearestNeighbor()
    return Comparison(criterion, inputs, measured, record, began)


def _files(inputs: Inputs, norms: Mapping[str, Mapping[str, float]]) -> dict[str, dict[str, Any]]:
    """The entry of each file of the inputs. norms: see `Inputs.check`."""
    precomputed = inputs.sides.precomputed
    return {
        name: {
            "path": file.origin.path,
            "rows": len(file),
            "columns" if precomputed else "dim": file.shape[1],
            "dtype": str(file.dtype).removeprefix("torch."),
            "fingerprint": file.fingerprint(),
            "range" if precomputed else "norms": norms[name],
        }
        for name, file in inputs.files.items()
    }


def _references(inputs: Inputs, files: Mapping[str, Any], criteria: Collection[Criterion]) -> dict[str, Any]:
    """The "reference" queries of the criteria and their "reference_items". files: the entries of the files."""
    sides = inputs.sides
    reference: dict[str, Any] = {"kind": "none", "set": "none"}
    if {reference_kind(criterion, sides.inductive) for criterion in criteria} - {"none"}:
        reference = {"kind": "transductive", "set": "the queries themselves", "rows": len(sides.queries)}
        if sides.inductive:
            file = files["reference_scores" if sides.precomputed else "reference"]
            reference = {"kind": "inductive", "set": file["path"], **file, "left_out": sides.left_out}
    file = files.get("reference_items")
    items_entry = {"set": file["path"], **file} if file else {"set": "the items themselves", "rows": len(sides.items)}
    are_used = any(criterion.takes_reference_items for criterion in criteria)
    return {"reference": reference, "reference_items": items_entry if are_used else None}


def with_absolute_path(value: Any) -> Any:
    """A relative path of a file as an absolute one, `FILE::ARRAY` too; an address masked; other values unchanged."""
    is_file = isinstance(value, str) and value != ALIGNED and not is_uri(value.removeprefix("file://"))
    if is_file:
        return str(Path(value.removeprefix("file://")).absolute())
    return masked(value) if isinstance(value, str) else value


def settings_without_file(files: Mapping[str, str]) -> list[str]:
    """The settings of a record, as "name=value", whose files are gone, or that are addresses."""
    others = {name: file for name, file in files.items() if file != ALIGNED}
    return [f"{name}={file}" for name, file in others.items() if is_uri(file) or not Path(split_path(file)[0]).exists()]


def measurements(
    measured: Measured, criteria: Mapping[str, Criterion], inputs: Inputs, seed: int = 0
) -> dict[str, Any]:
    """The measured part of the record: "ks", "rankings", "hubs" and "antihubs".

    "hubs" are the EXAMPLES items with the largest N_k in the plain ranking, for the largest k of ks; among equal ones
    the lower row comes first. "antihubs" has the number of items with N_k = 0 under each ranking, and EXAMPLES of those
    of the plain ranking, drawn by `seed`.
    """
    plain = measured.rankings[0].occurrences
    hubs = _entries(measured, plain.largest(EXAMPLES), inputs)
    antihub_rows = plain.absent_items(sample_positions(plain.absent, EXAMPLES, seed))
    # Of result lists only the first rows have names, the others are only counted.
    antihubs = _entries(measured, antihub_rows[antihub_rows < inputs.item_names.rows], inputs)
    if inputs.item_names.images is not None and not any(entry["image"] for entry in [*hubs, *antihubs]):
        log.warning("item_images has no picture of the %d items of the page", len(hubs) + len(antihubs))
    return {
        "ks": list(measured.ks),
        "rankings": [_ranking(ranking, criteria.get(ranking.name), measured, inputs) for ranking in measured.rankings],
        "hubs": hubs,
        "antihubs": {"count": [ranking.occurrences.absent for ranking in measured.rankings], "examples": antihubs},
    }


def _ranking(ranking: Ranked, criterion: Criterion | None, measured: Measured, inputs: Inputs) -> dict[str, Any]:
    """The measurements of a ranking; criterion: None for the plain one.

    "gain": in R@1 over the plain ranking, None without truth. "hubs_made": the EXAMPLES largest hubs that the plain
    ranking does not have.
    """
    plain, positives = measured.rankings[0], inputs.sides.positives
    # If items search among themselves, an item has one query and one item fewer: itself.
    k, itself = measured.ks[-1], int(inputs.sides.exclude_self)
    queries, items = len(inputs.sides.queries) - itself, len(inputs.sides.items) - itself
    level = hub_level(k, queries, items)
    counts = {item: ranking.occurrences[item] for item in ranking.occurrences.largest(EXAMPLES).tolist()}
    return {
        "criterion": ranking.name,
        "parameters": {} if criterion is None else criterion.parameters(),
        "reference": reference_kind(criterion, inputs.sides.inductive),
        "hubness": ranking.hubness,
        "verdict": verdict(ranking.hubness, k, queries, items),
        "histograms": ranking.histograms,
        "truth": ranking.truth,
        "changed": ranking.changed,
        "gain": None if positives is None else r1_gain(plain.first_items, ranking.first_items, positives),
        "hubs_made": [
            {"item": item, **inputs.item_names.of(item), "before": plain.occurrences[item], "after": count}
            for item, count in counts.items()
            if count >= level > plain.occurrences[item]
        ],
    }


def reference_kind(criterion: Criterion | None, inductive: bool) -> str:
    """The kind of a criterion's reference: "none", "inductive" or "transductive". Matchings use the queries."""
    if criterion is None or not (criterion.needs_reference or criterion.matching is not None):
        return "none"
    return "inductive" if inductive else "transductive"


def _entries(measured: Measured, items: Tensor, inputs: Inputs) -> list[dict[str, Any]]:
    """Items with their names, N_k and bad N_k under each ranking, and the first queries whose plain list has them."""
    rankings = measured.rankings
    queries_of = {
        item: (rankings[0].positions == item).any(dim=1).nonzero().flatten()[:SHOWN_QUERIES].tolist()
        for item in items.tolist()
    }
    return [
        {
            "item": item,
            **inputs.item_names.of(item),
            "image": inputs.item_names.image(item),
            "occurrences": [ranking.occurrences[item] for ranking in rankings],
            "wrong": [ranking.wrong[item] for ranking in rankings if ranking.wrong is not None] or None,
            "queries": [{"query": query, **inputs.query_names.of(query)} for query in queries],
        }
        for item, queries in queries_of.items()
    ]
