"""`vsehub calibrate`: learn from queries with known answers which scores of a reranking mean that nothing is there."""

import sys
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import fail, require, whole_seed
from vsehub.cli import app
from vsehub.cli.nodes import device_named, plain
from vsehub.cli.overrides import with_result
from vsehub.data.vectors.paths import require_vectors, split_path

if TYPE_CHECKING:
    from vsehub.metrics.positives import Positives
    from vsehub.neighbors.vectors import VectorSource
    from vsehub.rerank.inputs import Inputs


def main() -> None:
    """Run the command; a bare argument is the folder of a result."""
    sys.argv = [sys.argv[0], *with_result(sys.argv[1:])]
    app.run(calibrate, "calibrate")


def calibrate(cfg: DictConfig) -> None:
    """Find the thresholds of `cfg.false_accept` for the ranking of `cfg.result`, and write them to its record."""
    require(cfg.result is not None, "result is not set; give the folder that vsehub rerank wrote")
    whole_seed("seed", cfg.seed)
    if cfg.queries is not None:
        require_vectors("queries", split_path(str(cfg.queries))[0])

    from vsehub.cli.result import Result
    from vsehub.neighbors.vectors import as_vectors
    from vsehub.report.tables import ReportTable
    from vsehub.serving.calibration import Calibration

    result = Result(str(cfg.result))
    criterion, sides = result.criterion, result.inputs.sides
    require(
        not criterion.needs_reference or sides.inductive,
        f"result: {result.name} was fitted on the queries themselves, on which the scores then depend. Give rerank "
        "reference=FILE, other queries such as training captions",
    )
    asked, positives = asked_queries(cfg, result.inputs)
    device = device_named(str(cfg.device))
    queries = as_vectors("queries", asked, device=device)
    reference = as_vectors("reference", sides.reference, device=device) if criterion.needs_reference else None
    terms = (result.bias.float().to(device),) if criterion.needs_reference else ()
    found = Calibration.of(criterion, queries, sides.items, terms, positives, reference, cfg.seed)
    rates = [found.accepted(rate) for rate in sorted(set(plain(cfg.false_accept)))]
    with result.extended((), False):
        truth = result.inputs.given.get("truth") if cfg.truth is None else str(cfg.truth)
        result.record["calibration"] = {"path": truth, "queries": len(found), "rates": rates}
    head = ["false accepts, at most", "accepted above", "queries with answers accepted", "95 % interval"]
    rows = [
        [
            *(f"{one['false_accept']:g}", f"{one['threshold']:.6g}", f"{one['accepted']:.1%}"),
            "{:.1%} to {:.1%}".format(*one["interval"]),
        ]
        for one in rates
    ]
    print(ReportTable(head, rows).terminal())
    print(f"{result.name}, {len(found):,} calibration queries, one of each group that shares answers")
    print(f"written to {result.folder}; vsehub index stores the thresholds, and its note applies them")


def asked_queries(cfg: DictConfig, inputs: "Inputs") -> "tuple[VectorSource, Positives]":
    """The queries that calibrate, and their answers: those of `cfg`, else those of the result."""
    from vsehub.data.vectors.embeddings import look_through, open_vectors, same_space
    from vsehub.rerank.names import read_names, read_positives

    queries, names = inputs.sides.queries, inputs.query_names
    if cfg.queries is not None:
        file = open_vectors(str(cfg.queries), "queries", inputs.given["normalize"])
        same_space(file, inputs.files["items"])
        look_through(file)
        given = {} if cfg.query_ids is None else {"query_ids": str(cfg.query_ids)}
        queries, names = file, read_names("queries", len(file), given, file.ids)
    if cfg.truth is not None:
        return queries, read_positives(str(cfg.truth), names, inputs.item_names)
    if cfg.queries is not None or inputs.sides.positives is None:
        fail("truth is not set; give the answers of the queries as truth=FILE")
    return queries, inputs.sides.positives
