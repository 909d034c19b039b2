"""`vsehub rerank`: rank your own embeddings with hubs corrected, and measure before and after."""

from omegaconf import DictConfig

from vsehub.cli.embeddings import KIND, PAGE, comparison, named_files
from vsehub.cli.nodes import build, choice_in
from vsehub.io.files import Output
from vsehub.io.records import BIASES, RESULT

RANKING = "ranking.parquet"


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its biases, record and page."""
    files = named_files(cfg)
    out = Output(str(cfg.out), KIND, (RANKING, BIASES, RESULT, PAGE), cfg.overwrite)

    from vsehub.criteria import ItemBias
    from vsehub.ranking.table import write_biases, write_ranking

    criteria = {choice_in("criterion"): build("criterion", cfg.criterion)}
    with comparison("rerank", cfg, files, out, criteria) as outcome:
        inputs = outcome.inputs
        ranked = outcome.measured.rankings[-1]
        ids = inputs.item_names.ids
        write_ranking(out / RANKING, ranked.positions, ranked.values, inputs.query_names.ids, ids)
        if isinstance(outcome.criterion, ItemBias) and not inputs.sides.precomputed:
            write_biases(out / BIASES, ranked.item_terms, outcome.criterion.scale, len(inputs.sides.items), ids)
