"""`vsehub rerank`: rank your own embeddings with hubs corrected, measure before and after, and build an index."""

import time
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import one_of, require
from vsehub.cli import app
from vsehub.cli.embeddings import PAGE, RESULT, Comparison, Settings, built, compared, table
from vsehub.cli.nodes import choice, components, plain

if TYPE_CHECKING:
    from vsehub.criteria import Criterion, ItemBias
    from vsehub.rerank.cluster import Cluster
    from vsehub.serving import ServedIndex

RANKING, INDEX, USAGE = "ranking.parquet", "index.faiss", "USAGE.md"
FILES = (RESULT, PAGE, RANKING, INDEX, USAGE)
ENGINES = ("local", "ray")


def main() -> None:
    """Run the command."""
    app.run(rerank, "rerank")


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its record and its page."""
    settings = Settings.of(cfg, "rerank", "a reranking", FILES)
    kind, name = cfg.index, choice("criterion")

    from vsehub.criteria import Auto, NearestNeighbor
    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.table import write_ranking

    criterion, tuning = built(name, cfg.criterion), None
    if isinstance(criterion, Auto):
        tuning = Tuning(cfg.tune_queries, cfg.tune_truth, cfg.tune_share)
        criterion = criterion if kind is None else criterion.indexable()
    else:
        require(cfg.tune_queries is None, f"tune_queries is for criterion=auto; {name} is not chosen by anything")
    require(
        not settings.scored or cfg.tune_queries is None,
        "tune_queries holds vectors, and scores are given; omit it: a part of the queries with truth is used to choose",
    )
    if kind is not None:
        require(
            not settings.scored,
            "index: an index holds vectors, and only scores are given; omit index, or give queries and items",
        )
        require_index(kind, name, criterion.correction if tuning else criterion)
    # The plain ranking is measured in any case.
    corrections = {} if isinstance(criterion, NearestNeighbor) else {name: criterion}
    with compared(settings, corrections, tuning, cluster_of(cfg, settings)) as found:
        found.out.begin((RESULT, PAGE, RANKING) if kind is None else FILES)
        ranked, inputs = found.measured.rankings[-1], found.inputs
        ids = inputs.query_names.ids, inputs.item_names.ids
        write_ranking(found.out / RANKING, ranked.positions, ranked.values, *ids)
        written = [RANKING]
        if kind is not None:
            used = next(iter(found.criteria.values()), NearestNeighbor())
            written += write_index(found, used, kind, settings.k, settings.seed)
        written += found.finish()
    print(f"{table(found.record)}\nwritten to {settings.out}: {', '.join(written)}")


def cluster_of(cfg: DictConfig, settings: Settings) -> "Cluster | None":
    """The cluster that `engine` asks for, None for this process. Raises InputError for settings that do not fit."""
    one_of("engine", cfg.engine, ENGINES)
    own = {name: cfg[name] for name in ("ray_address", "num_cpus", "num_gpus", "workers", "shard_rows")}
    if cfg.engine == "local":
        given = [name for name, value in own.items() if value is not None]
        require(not given, f"{', '.join(given)}: for engine=ray, and engine is local; omit them, or set engine=ray")
        return None
    require(
        not settings.scored,
        "engine=ray divides the items' vectors among workers, and only scores are given; give queries and items, or "
        "use engine=local",
    )
    require(
        settings.device == "auto",
        "device is for engine=local; workers of Ray compute on a GPU where num_gpus gives them one. Omit device",
    )
    from vsehub.rerank.cluster import Cluster

    return Cluster(**{name.removeprefix("ray_"): value for name, value in own.items() if value is not None})


def require_index(kind: str, name: str, criterion: "Criterion") -> None:
    """Raise InputError for an unknown kind, a criterion that an index cannot hold, or if FAISS is missing."""
    from vsehub.criteria import ItemBias
    from vsehub.neighbors.faiss import required_faiss
    from vsehub.serving.index_file import KINDS

    require(kind in KINDS, f"index is {kind!r}; choose one of {', '.join(KINDS)}, or null for none")
    require(
        isinstance(criterion, ItemBias),
        f"index: {name} does not rank by the score minus a term of the item, which is all that an index can hold; "
        f"choose one of {', '.join(indexed_criteria())}, or omit index",
    )
    required_faiss(f"index={kind}", "omit index")


def indexed_criteria() -> list[str]:
    """The criteria that an index can hold."""
    from vsehub.criteria import ItemBias

    known = components()
    nodes = {name: plain(OmegaConf.load(known.path("criterion", name))) for name in known.choices("criterion")}
    made = {name: known.find("criterion", node) for name, node in nodes.items()}
    return [name for name, one in made.items() if isinstance(one, type) and issubclass(one, ItemBias)]


def write_index(found: Comparison, criterion: "ItemBias", kind: str, k: int, seed: int) -> list[str]:
    """Write an index that returns the corrected ranking, and a note on searching it; add both to the record."""
    import torch

    from vsehub.io.files import write_text
    from vsehub.serving import build_index, measured_recall

    began = time.perf_counter()
    inputs, ranked = found.inputs, found.measured.rankings[-1]
    bias = ranked.item_terms[0] if ranked.item_terms else torch.zeros(len(inputs.items))
    index = build_index(inputs.items, bias, criterion.scale, kind, "building the index", seed)
    index.save(found.out / INDEX)
    recall = None
    if kind != "flat":  # which is exact
        recall = {"k": k} | measured_recall(index, inputs.queries, inputs.items, bias, criterion.scale, k, seed=seed)
    size = (found.out / INDEX).stat().st_size
    found.record["index"] = {"kind": kind, "file": INDEX, "bytes": size, "recall": recall}
    found.record["seconds"]["index"] = time.perf_counter() - began
    write_text(found.out / USAGE, usage(index, found.record, k, inputs.item_names.ids is not None))
    return [INDEX, USAGE]


def usage(index: "ServedIndex", record: dict[str, Any], k: int, has_ids: bool) -> str:
    """A note on searching the index with only FAISS and numpy."""
    from vsehub.serving import usage_note

    items, ranking = record["items"], record["rankings"][-1]
    ids = ", in the order of the ids" if has_ids else ""
    reference = "" if ranking["reference"] == "none" else f", its reference {record['reference']['set']}"
    if record["reference_items"] is not None:
        reference += f", its reference items {record['reference_items']['set']}"
    return (
        f"# Searching {INDEX}\n\n"
        f"The {items['rows']:,} vectors of {items['path']}, ranked by {ranking['criterion']}{reference}. Searching "
        f"needs only FAISS and numpy:\n\n"
        f"```python\n{usage_note(index, k=k)}```\n\n"
        f"`positions` are rows of {items['path']}, counted from 0{ids}.\n"
    )
