"""`vsehub calibrate`: learn the score below which a query has no answer, from queries with known answers."""

import logging

from omegaconf import DictConfig

from vsehub.checks import fail, require
from vsehub.cli.embeddings import extend_result
from vsehub.cli.nodes import as_list, device_named

HEAD = ("false accepts, at most", "accepted above", "queries with answers accepted", "95 % interval")
CELLS = ("{false_accept:g}", "{threshold:.6g}", "{accepted:.1%}", "{interval[0]:.1%} to {interval[1]:.1%}")

log = logging.getLogger(__name__)


def calibrate(cfg: DictConfig) -> None:
    """Find the thresholds of `cfg.false_accept` for the ranking of `cfg.result`, and write them to its record."""
    from vsehub.neighbors.vectors import as_vectors
    from vsehub.ranking.record import with_absolute_path
    from vsehub.ranking.result import Result
    from vsehub.report.tables import ReportTable
    from vsehub.serving.calibration import Calibration

    changes = {name: cfg[name] for name in ("queries", "query_ids", "truth", "items", "reference")}
    result = Result(str(cfg.result), changes, new_queries=cfg.queries is not None)
    criterion = result.criterion
    sides = result.inputs.sides
    require(
        not criterion.needs_reference or sides.inductive,
        f"result: {result.name} was fitted on the queries themselves, which change its scores. Give rerank "
        "reference=FILE, other queries such as training captions",
    )
    if sides.positives is None:
        fail("truth is not set; give the answers of the queries as truth=FILE")
    result.inputs.check()
    device = device_named(str(cfg.device))
    queries = as_vectors("queries", sides.queries, device=device)
    reference = None
    if criterion.needs_reference:
        # The criterion was fitted on the file without the ranked queries. If other queries are given, `sides.reference`
        # lacks those instead and could not show which of them the fit has seen: the whole file is then taken.
        fitted_on = sides.reference if cfg.queries is None else result.inputs.files["reference"]
        reference = as_vectors("reference", fitted_on, device=device)
    terms = (result.bias.float().to(device),) if criterion.needs_reference else ()
    calibration = Calibration.from_queries(criterion, queries, sides.items, terms, sides.positives, reference)
    rates = [calibration.at_rate(rate) for rate in sorted(set(as_list(cfg.false_accept)))]
    chosen_by = result.record["inputs"].get("tune_queries") or result.record["inputs"]["queries"]
    calibrates_by = with_absolute_path(result.inputs.settings["queries"])
    if (result.record["choice"] or {}).get("queries") and calibrates_by == chosen_by:
        log.warning("the answers of these queries chose %s: others may be accepted less often", result.name)
    if result.rates:
        log.info("replaces the thresholds of false_accept %s", ", ".join(f"{rate:g}" for rate in result.rates))
    with extend_result(result, (), False):
        path = cfg.truth or result.record["truth"].get("path")
        result.record["calibration"] = {"path": path, "queries": len(calibration), "rates": rates}
    rows = [[cell.format(**rate) for cell in CELLS] for rate in rates]
    print(ReportTable(HEAD, rows).terminal())
    useless = [f"{rate['false_accept']:g}" for rate in rates if rate["interval"][0] <= rate["false_accept"]]
    if useless:
        log.warning(
            "false_accept %s: this threshold may accept queries with answers no more often than queries without",
            ", ".join(useless),
        )
    print(
        f"{result.name}, {len(calibration):,} calibration queries, one of each group that shares answers\n"
        f"written to {result.folder}; vsehub index applies a threshold in its note if you give false_accept="
    )
