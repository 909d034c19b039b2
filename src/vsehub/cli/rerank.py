"""`vsehub rerank`: rank your own embeddings with hubs corrected, and measure before and after."""

from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from vsehub.checks import one_of, require
from vsehub.cli.embeddings import PAGE, RESULT, TUNING, finish, named_files, opened
from vsehub.cli.nodes import build, device_named
from vsehub.io.files import Output

if TYPE_CHECKING:
    from vsehub.ranking.engines import Engine

KIND, RANKING, BIASES = "a reranking", "ranking.parquet", "biases.parquet"


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its biases, record and page."""
    name, files = str(HydraConfig.get().runtime.choices["criterion"]), named_files(cfg)
    out = Output(str(cfg.out), KIND, (RESULT, PAGE, RANKING, BIASES), cfg.overwrite)
    unread = [one for one in TUNING if one in files and name != "auto"]
    require(not unread, f"{', '.join(unread)}: for criterion=auto; {name} is not chosen by anything")

    from vsehub.criteria import ItemBias, NearestNeighbor
    from vsehub.ranking.compare import compared
    from vsehub.ranking.table import write_biases, write_ranking
    from vsehub.report.comparison import table

    criterion = build("criterion", cfg.criterion)
    # The plain ranking is measured in any case.
    criteria = {} if isinstance(criterion, NearestNeighbor) else {name: criterion}
    inputs = opened(files, cfg.normalize, criteria)
    with out.held(), engine(cfg, inputs.sides.given) as where:
        found = compared("rerank", inputs, criteria, cfg.k, where, cfg.seed)
        biased = isinstance(found.criterion, ItemBias) and not inputs.sides.given
        written = [RANKING, *([BIASES] if biased else [])]
        out.begin((RESULT, PAGE, *written))  # a command that is stopped is known by its mark
        ranked, ids = found.measured.rankings[-1], found.inputs.item_names.ids
        write_ranking(out / RANKING, ranked.positions, ranked.values, found.inputs.query_names.ids, ids)
        if biased:
            write_biases(out / BIASES, ranked.item_terms, found.criterion.scale, len(inputs.sides.items), ids)
        written += finish(found, out)
    print(f"{table(found.record)}\nwritten to {out.shown}: {', '.join(written)}")


def engine(cfg: DictConfig, scored: bool) -> AbstractContextManager["Engine"]:
    """The engine that computes: this process or a cluster. scored: whether the inputs are precomputed scores.

    Raises InputError for settings that do not fit.
    """
    one_of("engine", cfg.engine, ("local", "ray"))
    own = {name: cfg[name] for name in ("ray_address", "num_cpus", "num_gpus", "shard_rows") if cfg[name] is not None}
    if cfg.engine == "local":
        require(not own, f"{', '.join(own)}: for engine=ray, and engine is local; omit them, or set engine=ray")
        from vsehub.ranking.engines import Local

        return nullcontext(Local(device_named(str(cfg.device))))
    require(
        not scored and cfg.device == "auto",
        "engine=ray takes no scores or device: workers hold vectors, on a GPU where num_gpus "
        "gives them one. Omit them, or use engine=local",
    )
    from vsehub.ranking.ray import cluster

    return cluster(**{name.removeprefix("ray_"): value for name, value in own.items()})
