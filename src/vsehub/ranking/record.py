"""The record of a comparison in plain values: the contents of result.json, from which the page is drawn."""

import logging
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from vsehub.criteria.base import Criterion
from vsehub.data.vectors.embeddings import Norms, VectorFile
from vsehub.neighbors.given import UnitVectors
from vsehub.neighbors.vectors import VectorSource, drawn, row_digests
from vsehub.ranking.gains import gained
from vsehub.ranking.inputs import CheckedInputs, Inputs, Names, Range
from vsehub.ranking.measure import Measured, Ranked
from vsehub.ranking.verdict import hub_level, verdict

log = logging.getLogger(__name__)

EXAMPLES = 20
MOST_HASHED = 4 << 30  # bytes of items that are compared with each other, number for number, in some seconds
MOST_COMPARED = 8_000_000  # items whose hashes are sorted, in some hundred megabytes
QUERIES = 3  # of a hub's queries


def record(
    inputs: Inputs, checked: CheckedInputs, measured: Measured, criteria: Mapping[str, Any], k: int, seed: int = 0
) -> dict[str, Any]:
    """The record of the inputs and of all measurements."""
    sides = {name: _side(vectors, checked.norms[name]) for name, vectors in inputs.files.items()}
    return {
        "scores": sides.get("scores"),
        "queries": sides.get("queries", {"rows": len(inputs.sides.queries)}),
        "items": sides.get("items", {"rows": len(inputs.sides.items)}),
        "reference": _reference(inputs, sides, checked, criteria),
        "reference_items": _reference_items(inputs, sides, criteria),
        "inputs": dict(inputs.given),
        "k": k,
        "truth": _truth(inputs),
        **values(measured, criteria, inputs, seed),
        "index": None,
        "calibration": None,
    }


def _side(vectors: VectorFile, norms: Norms | Range) -> dict[str, Any]:
    """The metadata of a file; precomputed scores have "columns" and a "range" instead of "dim" and "norms"."""
    columns, spread = ("dim", "norms") if isinstance(norms, Norms) else ("columns", "range")
    return {
        "path": vectors.origin.path,
        "rows": len(vectors),
        columns: vectors.shape[1],
        "dtype": str(vectors.dtype).removeprefix("torch."),
        "fingerprint": vectors.fingerprint(),
        spread: asdict(norms),
    }


def _reference(
    inputs: Inputs, sides: Mapping[str, dict[str, Any]], checked: CheckedInputs, criteria: Mapping[str, Any]
) -> dict[str, Any]:
    """The reference: the queries from which the criteria took their terms."""
    inductive = inputs.sides.reference is not None
    if all(reference_kind(criterion, inductive) == "none" for criterion in criteria.values()):
        return {"kind": "none", "set": "none"}
    if inputs.sides.reference is None:
        return {"kind": "transductive", "set": "the queries themselves", "rows": len(inputs.sides.queries)}
    side = sides["reference" if "reference" in sides else "reference_scores"]
    return {"kind": "inductive", "set": side["path"], **side, "queries_in_it": checked.shared}


def _reference_items(
    inputs: Inputs, sides: Mapping[str, dict[str, Any]], criteria: Mapping[str, Any]
) -> dict[str, Any] | None:
    """The facts of the reference items; None if no criterion takes any."""
    if not any(criterion.takes_reference_items for criterion in criteria.values()):
        return None
    if inputs.sides.reference_items is None:
        return {"set": "the items themselves", "rows": len(inputs.sides.items)}
    side = sides["reference_items"]
    return {"set": side["path"], **side}


def _truth(inputs: Inputs) -> dict[str, Any] | None:
    """The true pairs, against which recalls are measured."""
    truth = inputs.sides.positives
    if truth is None:
        return None
    measured = int((truth.counts > 0).sum())
    return {
        "path": inputs.given.get("truth"),
        "pairs": len(truth.query),
        "measured_queries": measured,
        "queries_without": truth.queries - measured,
    }


def health(inputs: Inputs, measured: Measured) -> dict[str, Any]:
    """The verdicts on the plain and on the last ranking, see `ranking.verdict`.

    Logs a warning if items are copies of others.
    """
    given = isinstance(inputs.sides.items, UnitVectors)  # precomputed scores do not tell which items are copies
    rows, dim = inputs.sides.items.shape
    if not given and rows <= MOST_COMPARED and 4 * rows * dim <= MOST_HASHED:
        _tell_copies(inputs.sides.items)
    k, queries = measured.ks[-1], len(inputs.sides.queries)
    verdicts = [verdict(one.hubness, k, queries, rows) for one in measured.rankings]
    return {"verdict": verdicts[0], "verdict_corrected": verdicts[-1] if len(verdicts) > 1 else None}


def _tell_copies(items: VectorSource) -> None:
    """Log a warning if items are copies of others: copies enter a list together."""
    _, first, place = np.unique(row_digests(items), return_index=True, return_inverse=True)
    copies = np.flatnonzero(first[place] != np.arange(len(items)))
    if len(copies):
        log.warning(
            "%d of the %d items are copies of others, number for number (item %d of item %d, for example, counted from "
            "0): they enter lists together",
            *(len(copies), len(items), copies[0], first[place][copies[0]]),
        )


def values(measured: Measured, criteria: Mapping[str, Criterion], inputs: Inputs, seed: int = 0) -> dict[str, Any]:
    """The measured part of the record: "ks", "rankings", "hubs" and "antihubs".

    "hubs" are the EXAMPLES items with the largest N_k in the plain ranking, for the largest k of ks; among equal ones
    the lower row comes first. "antihubs" has the number of items with N_k = 0 under each ranking, and EXAMPLES of those
    of the plain ranking, drawn by `seed`.
    """
    plain, queries, items = measured.rankings[0].occurrences, inputs.query_names, inputs.item_names
    shown = {
        "hubs": _entries(measured, plain.largest(EXAMPLES), queries, items),
        "antihubs": _entries(measured, plain.absent_items(drawn(plain.absent, EXAMPLES, seed)), queries, items),
    }
    entries = [*shown["hubs"], *shown["antihubs"]]
    if items.images is not None and not any(entry["image"] for entry in entries):
        where = items.images if isinstance(items.images, Path) else "the list"
        log.warning("of the %d images of the page none is in %s: it has no pictures", len(entries), where)
    return {
        "ks": list(measured.ks),
        "rankings": [_ranking(one, criteria.get(one.name), measured, inputs) for one in measured.rankings],
        "hubs": shown["hubs"],
        "antihubs": {
            "count": [ranking.occurrences.absent for ranking in measured.rankings],
            "examples": shown["antihubs"],
        },
    }


def _ranking(ranking: Ranked, criterion: Criterion | None, measured: Measured, inputs: Inputs) -> dict[str, Any]:
    """The measurements of a ranking; criterion: None for the plain one.

    "gain": in R@1 over the plain ranking, None without truth. "hubs_made": the EXAMPLES largest hubs that are none in
    the plain ranking.
    """
    plain, positives = measured.rankings[0], inputs.sides.positives
    level = hub_level(measured.ks[-1], len(inputs.sides.queries), len(inputs.sides.items))
    counts = {item: ranking.occurrences[item] for item in ranking.occurrences.largest(EXAMPLES).tolist()}
    made = [item for item, count in counts.items() if count >= level > plain.occurrences[item]]
    told = [inputs.item_names.of(item) | {"before": plain.occurrences[item], "after": counts[item]} for item in made]
    return {
        "criterion": ranking.name,
        "parameters": {} if criterion is None else criterion.parameters(),
        "reference": reference_kind(criterion, inputs.sides.inductive),
        "hubness": ranking.hubness,
        "histograms": ranking.histograms,
        "truth": ranking.truth,
        "changed": ranking.changed,
        "gain": None if positives is None else gained(plain.positions, ranking.positions, positives),
        "hubs_made": [{"item": item} | one for item, one in zip(made, told, strict=True)],
    }


def reference_kind(criterion: Criterion | None, inductive: bool) -> str:
    """The kind of a criterion's reference: "none", "inductive" or "transductive". Matchings use the queries."""
    if criterion is None or not (criterion.needs_reference or criterion.matching is not None):
        return "none"
    return "inductive" if inductive else "transductive"


def _entries(measured: Measured, chosen: Tensor, queries: Names, items: Names) -> list[dict[str, Any]]:
    """Items with their names, N_k and bad N_k under each ranking, and the first queries whose plain list has them."""
    rankings = measured.rankings

    def first_queries(item: int) -> list[int]:
        return (rankings[0].positions == item).any(dim=1).nonzero().flatten()[:QUERIES].tolist()

    return [
        {
            "item": item,
            **items.of(item),
            "image": items.image(item),
            "occurrences": [ranking.occurrences[item] for ranking in rankings],
            "wrong": [one.wrong[item] for one in rankings if one.wrong is not None] or None,
            "queries": [{"query": query, **queries.of(query)} for query in first_queries(item)],
        }
        for item in chosen.tolist()
    ]
