"""`vsehub rerank`: rank your own embeddings with hubs corrected, measure before and after, and build an index."""

from collections.abc import Mapping
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import boolean, existing, one_of, require
from vsehub.cli import app
from vsehub.cli.calibrate import of_ranking, require_calibrated_criterion
from vsehub.cli.embeddings import PAGE, RESULT, Settings, built, finish, opened
from vsehub.cli.index import INDEX, USAGE, RequestedIndex, indexed_criteria
from vsehub.cli.nodes import choice

if TYPE_CHECKING:
    from vsehub.rerank.compare import Workplace

RANKING, BIASES = "ranking.parquet", "biases.parquet"
ENGINES = ("local", "ray")


def main() -> None:
    """Run the command."""
    app.run(rerank, "rerank")


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its record and its page."""
    settings = Settings.of(cfg, "rerank", "a reranking", (RESULT, PAGE, RANKING, BIASES, INDEX, USAGE))
    name, index = choice("criterion"), RequestedIndex.of(cfg, settings)
    if cfg.calibration is not None:
        existing("calibration", str(cfg.calibration), "Give the calibration.json that vsehub calibrate wrote")
    require(
        cfg.accept is None or cfg.calibration is not None or settings.files["truth"] is not None,
        "accept is given without calibration and without truth; give calibration=FILE, or the answers of some queries",
    )
    if cfg.calibration is not None or cfg.accept is not None:
        require_calibratable(cfg, settings, name)

    from vsehub.criteria import Auto, ItemBias, NearestNeighbor
    from vsehub.report.terminal import table as terminal
    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.compare import Job, compared
    from vsehub.rerank.table import write_biases, write_ranking
    from vsehub.serving.calibration import read_calibration, require_same_ranking

    criterion, tuning = built(name, cfg.criterion), None
    if isinstance(criterion, Auto):
        tuning = Tuning(cfg.tune_queries, cfg.tune_truth, cfg.tune_share)
        criterion = criterion.indexable() if index is not None or cfg.biases else criterion
    else:
        for key in ("tune_queries", "tune_truth"):
            require(cfg[key] is None, f"{key} is for criterion=auto; {name} is not chosen by anything")
    require(
        not settings.scored or cfg.tune_queries is None,
        "tune_queries holds vectors, and scores are given; omit it: a part of the queries with truth is used to choose",
    )
    if index is not None:
        index.require(name, criterion.correction if tuning else criterion)
    boolean("biases", cfg.biases)
    require(
        not cfg.biases or tuning is not None or isinstance(criterion, ItemBias),
        f"biases=true: {name} does not rank by the score minus a term of the item; choose one of "
        f"{', '.join(indexed_criteria())}, or leave biases out",
    )
    by_truth = cfg.calibration is None and cfg.accept is not None
    calibration, calibrated = None, {"rates": []}
    if cfg.calibration is not None:
        calibration, calibrated = read_calibration(str(cfg.calibration))
        calibration.thresholds([] if cfg.accept is None else [cfg.accept])  # refuses a rate that it does not allow
    if by_truth:
        require_calibrated_criterion(name, criterion, settings.files["reference"] is not None)
    # The plain ranking is measured in any case.
    corrections = {} if isinstance(criterion, NearestNeighbor) else {name: criterion}
    out, where = settings.output, workplace(cfg, settings, corrections)
    job = Job("rerank", out, where, settings.k, settings.seed, tuning)
    inputs = opened(settings, corrections)
    if index is not None:
        index.check_items(inputs)
    if cfg.calibration is not None:
        require_same_ranking(calibrated, name, criterion.parameters(), inputs.files, settings.normalize)
    with compared(inputs, corrections, job) as found:
        if by_truth:
            calibration = of_ranking(found, criterion, settings)
        served = found.served
        ranked = served.ranked
        names, p_values = (found.inputs.query_names.ids, found.inputs.item_names.ids), None
        if calibration is not None:
            p_values = calibration.p_values(ranked.values[:, 0])
            path = str(inputs.truth_path if by_truth else cfg.calibration)
            applied = calibration.applied(p_values, calibrated["rates"], cfg.accept)
            found.record["calibration"] = {"path": path} | applied
        written = [
            RANKING,
            *((BIASES,) if cfg.biases else ()),
            *(() if index is None else index.files),
        ]
        if not out.earlier:
            out.begin((RESULT, PAGE, *written))  # replaces nothing; a command that is stopped is known by its mark
        with nullcontext() if index is None else index.built(found) as put_index:
            out.begin((RESULT, PAGE, *written))
            write_ranking(out / RANKING, ranked.positions, ranked.values, *names, p_values, cfg.accept)
            if cfg.biases:
                count = len(found.inputs.sides.items)
                write_biases(out / BIASES, ranked.item_terms, served.criterion.scale, count, names[1])
            if put_index is not None:
                put_index()
        written += finish(found, out)
    print(f"{terminal(found.record)}\nwritten to {settings.out}: {', '.join(written)}")


def require_calibratable(cfg: DictConfig, settings: Settings, name: str) -> None:
    """Raise InputError for a ranking whose scores are not those of `vsehub calibrate`."""
    refused = {
        "scores": settings.scored,
        "reference_items": cfg.reference_items is not None,
        "precision": settings.precision != "32",
        "criterion=auto": name == "auto",
        "engine=ray": cfg.calibration is None and cfg.engine == "ray",
    }
    given = [one for one, is_given in refused.items() if is_given]
    what = "accept" if cfg.calibration is None else "calibration"
    require(
        not given,
        f"{what} and {', '.join(given)} are given; it holds for scores of vectors in float32 under one criterion. "
        "Give one of them",
    )


def workplace(cfg: DictConfig, settings: Settings, criteria: Mapping[str, Any]) -> "Workplace":
    """Where `engine` computes: a cluster or this process. Raises InputError for settings that do not fit."""
    one_of("engine", cfg.engine, ENGINES)
    own = {name: cfg[name] for name in ("ray_address", "num_cpus", "num_gpus", "shard_rows")}
    if cfg.engine == "local":
        given = [name for name, value in own.items() if value is not None]
        require(not given, f"{', '.join(given)}: for engine=ray, and engine is local; omit them, or set engine=ray")
        return settings.local(criteria)
    require(
        not settings.scored,
        "engine=ray divides the items' vectors among workers, and only scores are given; give queries and items, or "
        "use engine=local",
    )
    require(
        settings.device == "auto",
        "device is for engine=local; workers of Ray compute on a GPU where num_gpus gives them one. Omit device",
    )
    require(settings.precision != "bf16", "precision is bf16, but engine=ray computes in float32; omit precision")
    from vsehub.rerank.ray import Cluster

    return Cluster(**{name.removeprefix("ray_"): value for name, value in own.items() if value is not None})
