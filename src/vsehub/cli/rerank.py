"""`vsehub rerank`: rank your own embeddings with hubs corrected, and measure before and after."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from omegaconf import DictConfig

from vsehub.checks import one_of
from vsehub.cli.embeddings import KIND, PAGE, comparison, named_files
from vsehub.cli.nodes import build, chosen, refuse
from vsehub.io.files import Output
from vsehub.io.records import BIASES, RESULT

if TYPE_CHECKING:
    from vsehub.ranking.measure import Local

RANKING = "ranking.parquet"


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its biases, record and page."""
    files = named_files(cfg)
    out = Output(str(cfg.out), KIND, (RANKING, BIASES, RESULT, PAGE), cfg.overwrite)

    from vsehub.criteria import ItemBias
    from vsehub.ranking.table import write_biases, write_ranking

    criteria = {chosen("criterion"): build("criterion", cfg.criterion)}
    with comparison("rerank", cfg, files, out, criteria, engine(cfg)) as outcome:
        inputs = outcome.inputs
        ranked = outcome.measured.rankings[-1]
        ids = inputs.item_names.ids
        write_ranking(out / RANKING, ranked.positions, ranked.values, inputs.query_names.ids, ids)
        if isinstance(outcome.criterion, ItemBias) and not inputs.sides.precomputed:
            write_biases(out / BIASES, ranked.item_terms, outcome.criterion.scale, len(inputs.sides.items), ids)


def engine(cfg: DictConfig) -> "AbstractContextManager[Local] | None":
    """A cluster; None for this process. Raises InputError for settings that do not fit."""
    one_of("engine", cfg.engine, ("local", "ray"))
    settings = {name: cfg[name] for name in ("ray_address", "num_gpus") if cfg[name] is not None}
    if cfg.engine == "local":
        refuse(cfg, settings, "engine=local")
        return None

    from vsehub.ranking.ray import cluster

    return cluster(settings.pop("ray_address", None), **settings)
