"""`vsehub calibrate`: learn from queries with known answers which scores mean that nothing is there."""

import time
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub import __version__
from vsehub.checks import boolean, existing, fail, is_finite, require, whole_seed
from vsehub.cli import app
from vsehub.cli.embeddings import built
from vsehub.cli.nodes import choice, device_named, plain
from vsehub.data.truth import ALIGNED
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.command import typed_command
from vsehub.io.files import alone, write_json
from vsehub.io.outputs import Output
from vsehub.io.records import CALIBRATION

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped file name is reported before
    from vsehub.cli.embeddings import Settings
    from vsehub.criteria import Correction, Criterion
    from vsehub.data.vectors.embeddings import VectorFile
    from vsehub.rerank.compare import Comparison
    from vsehub.rerank.names import Annotations
    from vsehub.serving.calibration import Calibration
    from vsehub.serving.databases.engines import Place

RECORD, DEFAULT = "calibration.json", "csls"
SIDES, ANNOTATIONS = ("queries", "items", "reference"), ("truth", "query_ids", "item_ids")
Made = tuple["Calibration", dict[str, Any]]


def main() -> None:
    """Run the command."""
    app.run(calibrate, "calibrate")


def calibrate(cfg: DictConfig) -> None:
    """Find the thresholds of `cfg.false_accept` for `cfg.items`, or for a collection, and write them to `cfg.out`."""
    boolean("normalize", cfg.normalize, or_none=True)
    whole_seed("seed", cfg.seed)
    sides = {name: str(cfg[name]) for name in SIDES if cfg[name] is not None}
    place = calibrated_place(cfg)
    for name in ("queries", "truth", *(("items",) if place is None else ())):
        require(
            cfg[name] is not None,
            f"{name} is not set; give queries whose answers are known, the true pairs as truth, and items or index",
        )
    for name, path in sides.items():
        require_vectors(name, split_path(path)[0])
    if cfg.truth != ALIGNED:
        existing("truth", str(cfg.truth), "Give a table of pairs with the columns query and item, or truth=aligned")
    out = Output(str(cfg.out), "a calibration", (RECORD,), cfg.overwrite)

    from vsehub.report.tables import ReportTable
    from vsehub.rerank.names import Annotations

    began, rates = time.perf_counter(), plain(cfg.false_accept)
    require(
        isinstance(rates, list) and len(rates) > 0 and all(map(is_finite, rates)),
        f"false_accept is {rates!r}; expected a list of shares, such as [0.01,0.05,0.1]",
    )
    rates = sorted(set(rates))
    annotations = Annotations(**{name: None if cfg[name] is None else str(cfg[name]) for name in ANNOTATIONS})
    with alone(out.folder, "writing"):
        if place is None:
            calibration, told = of_files(cfg, sides, annotations)
        else:
            calibration, told = of_collection(cfg, place, sides["queries"], annotations, rates)
        made = calibration.record(rates)
        out.begin((RECORD,))
        record = {
            "schema": CALIBRATION.version,
            "vsehub": __version__,
            "command": typed_command(),
            "truth": annotations.truth,
        }
        seconds = {"seed": cfg.seed, "seconds": time.perf_counter() - began}
        write_json(out / RECORD, record | told | seconds | made)
        out.finish()
    rows = [
        [
            *(f"{one['false_accept']:g}", f"{one['threshold']:.6g}", f"{one['accepted']:.1%}"),
            "{:.1%} to {:.1%}".format(*one["interval"]),
        ]
        for one in made["rates"]
    ]
    head = ["false accepts, at most", "accepted above", "queries with answers accepted", "95 % interval"]
    print(ReportTable(head, rows).terminal())
    stored = "" if place is None else f"stored with {place.address}; "
    print(
        f"{told['criterion']}, {len(calibration):,} calibration queries, one of each group that shares answers; "
        f"{stored}written to {out.shown}: {RECORD}; {seconds['seconds']:.1f} seconds"
    )


def calibrated_place(cfg: DictConfig) -> "Place | None":
    """The collection of `cfg.index`, None for files. Raises InputError for settings that do not go together."""
    if cfg.index is None:
        require(
            cfg.index_uri is None,
            "index_uri is given without index; give index=milvus, lancedb, qdrant or pgvector, too",
        )
        return None
    from vsehub.serving.databases.engines import placed

    own = [name for name in ("items", "reference", "item_ids") if cfg[name] is not None]
    require(not own, f"index and {', '.join(own)} are given; the items of a database have their own. Give one")
    require(
        choice("criterion") == DEFAULT,
        f"criterion={choice('criterion')}: a collection ranks by the criterion with which rerank filled it; leave "
        "criterion out",
    )
    return placed(str(cfg.index), None if cfg.index_uri is None else str(cfg.index_uri), str(cfg.index_name), None)


def of_files(cfg: DictConfig, sides: dict[str, str], annotations: "Annotations") -> Made:
    """The calibration of items in files, and its part of the record."""
    name = choice("criterion")

    from vsehub.criteria.base import fit_all
    from vsehub.neighbors.vectors import as_vectors
    from vsehub.rerank.inputs import open_inputs
    from vsehub.serving.calibration import Calibration

    criterion = built(name, cfg.criterion)
    require_calibrated_criterion(name, criterion, "reference" in sides)
    if not criterion.needs_reference:
        sides = {side: path for side, path in sides.items() if side != "reference"}
    inputs = open_inputs(sides, annotations, cfg.normalize)
    positives, device = inputs.sides.positives, device_named(str(cfg.device))
    assert positives is not None  # truth is set
    inputs.check()
    queries = as_vectors("queries", inputs.files["queries"], device=device)
    reference = as_vectors("reference", inputs.files["reference"], device=device) if "reference" in sides else None
    items = inputs.sides.items
    terms = () if reference is None else fit_all([criterion], items, reference)[0]
    found = Calibration.of(criterion, queries, items, terms, positives, reference, cfg.seed)
    changed = inputs.changed()
    require(not changed, f"{', '.join(map(str, changed))} changed while being read; give the command again")
    told = {side: side_record(inputs.files[side]) if side in sides else None for side in SIDES}
    own = {"criterion": name, "parameters": criterion.parameters(), "normalize": cfg.normalize, "collection": None}
    return found, own | told


def require_calibrated_criterion(name: str, criterion: "Criterion", has_reference: bool) -> None:
    """Raise InputError unless scores under a criterion are the same whatever else is asked."""
    from vsehub.criteria import Auto, Correction

    if isinstance(criterion, Auto) or not isinstance(criterion, Correction):
        fail(
            f"criterion={name} "
            + (
                "is chosen by rerank; name the one that it chose"
                if isinstance(criterion, Auto)
                else "matches the queries with each other, so a score says nothing alone; choose one that corrects "
                "scores, e.g. csls"
            )
        )
    require(
        not criterion.needs_reference or has_reference,
        f"reference is not set; without one {name} is estimated from the queries of each ranking, on which scores "
        "then depend. Give reference=FILE, other queries such as training captions, or criterion=nns",
    )


def of_ranking(found: "Comparison", criterion: "Correction", settings: "Settings") -> "Calibration":
    """The calibration by the queries with known answers of a ranking; a query that calibrates is asked like others.

    A query's own null score is no larger than its best score, so that its p value is larger for it, not smaller.
    """
    from vsehub.neighbors.vectors import as_vectors
    from vsehub.serving.calibration import Calibration

    inputs, device = found.inputs, device_named(settings.device)
    positives = inputs.sides.positives
    assert positives is not None  # truth is set
    queries = as_vectors("queries", inputs.sides.queries, device=device)
    held = inputs.sides.reference if criterion.needs_reference else None
    reference = None if held is None else as_vectors("reference", held, device=device)
    terms = tuple(term.to(queries.rows(0, 0).device) for term in found.served.ranked.item_terms)
    return Calibration.of(criterion, queries, inputs.sides.items, terms, positives, reference, settings.seed)


def of_collection(
    cfg: DictConfig, place: "Place", queries: str, annotations: "Annotations", rates: list[float]
) -> Made:
    """The calibration of the items of a collection, stored with it, and its part of the record."""
    from vsehub.data.vectors.embeddings import look_through, open_vectors
    from vsehub.neighbors.vectors import as_vectors
    from vsehub.rerank.names import read_positives
    from vsehub.serving.calibration import Calibration
    from vsehub.serving.databases.collection import open_collection

    with open_collection(place) as collection:
        criterion, metadata = collection.criterion, collection.metadata
        normalize = metadata.normalize if cfg.normalize is None else cfg.normalize
        file = open_vectors(queries, "queries", normalize=normalize)
        look_through(file)
        asked = as_vectors("queries", file, columns=metadata.dim, device=device_named(str(cfg.device)))
        vectors, bias, ids, _ = collection.items()
        names = annotations.query_names(len(file), file.ids, file.labels)
        positives = read_positives(str(annotations.truth), names, annotations.item_names(len(ids), ids))
        reference = as_vectors("reference", collection.reference) if metadata.reference_rows else None
        terms = (bias.to(asked.rows(0, 0).device),) if criterion.needs_reference else ()
        found = Calibration.of(criterion, asked, as_vectors("items", vectors), terms, positives, reference, cfg.seed)
        collection.calibrate(found.thresholds(rates)["thresholds"])
    told = {"address": place.address, "version": metadata.version, "items": len(ids)}
    own = {"criterion": metadata.criterion, "parameters": metadata.parameters, "normalize": normalize}
    return found, own | {"collection": told, "queries": side_record(file), "items": None, "reference": None}


def side_record(file: "VectorFile") -> dict[str, Any]:
    """The facts of a file of vectors."""
    fingerprint = file.fingerprint(whole=True)
    return {"path": file.origin.path, "rows": len(file), "dim": file.shape[1], "fingerprint": fingerprint}
