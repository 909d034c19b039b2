"""`vsehub rerank`: somebody's embeddings, ranked anew with hubs corrected, measured before and after."""

from omegaconf import DictConfig

from vsehub.checks import require
from vsehub.cli import app

KINDS = ("flat", "ivf", "hnsw")


def main() -> None:
    """Run the command."""
    app.run(rerank, "rerank")


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its record and its page."""
    from vsehub.cli.embeddings import built, find, finish
    from vsehub.cli.ranking_table import table
    from vsehub.criteria.nns import NearestNeighbor
    from vsehub.data.ranking import write_ranking
    from vsehub.retrieval.output import RANKING

    name = cfg.criterion_name
    rule = built(name, cfg.criterion)
    refuse_index(cfg.index, name, rule)
    found = find(cfg, "rerank", {} if isinstance(rule, NearestNeighbor) else {name: rule})
    found.out.clear()
    ranked, given = found.measured.rankings[-1], found.given
    write_ranking(found.out / RANKING, ranked.positions, ranked.values, given.query_names.ids, given.item_names.ids)
    files = [RANKING]
    if cfg.index is not None:
        files += write_index(cfg, rule, found)
    files += finish(found)
    print(f"{table(found.record)}\nwritten to {cfg.out}: {', '.join(files)}")


def refuse_index(kind: str | None, name: str, rule) -> None:
    """InputError for an unknown kind of index, and for a criterion that no inner-product index can hold."""
    from hydra.utils import get_class
    from omegaconf import OmegaConf

    from vsehub.criteria.base import ItemBias

    require(kind is None or kind in KINDS, f"index is {kind!r}; choose one of {', '.join(KINDS)}, or null for none")
    files = sorted((app.conf_folder() / "criterion").glob("*.yaml"))
    folding = [path.stem for path in files if issubclass(get_class(OmegaConf.load(path)["_target_"]), ItemBias)]
    require(
        kind is None or isinstance(rule, ItemBias),
        f"index: {name} does not rank by the score less a term of the item, which is all that an index can hold; "
        f"choose one of {', '.join(folding)}, or leave index out",
    )


def write_index(cfg, rule, found) -> list[str]:
    raise NotImplementedError
