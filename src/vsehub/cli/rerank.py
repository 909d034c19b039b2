"""`vsehub rerank`: rank your own embeddings with hubs corrected, measure before and after, and build an index."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from vsehub.checks import boolean, existing, one_of, require
from vsehub.cli import app
from vsehub.cli.embeddings import PAGE, RESULT, Comparison, Settings, built, compared, table
from vsehub.cli.nodes import choice, components, plain

if TYPE_CHECKING:
    from torch import Tensor

    from vsehub.criteria import Criterion, ItemBias
    from vsehub.rerank.cluster import Cluster
    from vsehub.serving.corrected import Searchable
    from vsehub.serving.databases.engines import Place

RANKING, BIASES, INDEX, USAGE = "ranking.parquet", "biases.parquet", "index.faiss", "USAGE.md"
FILES = (RESULT, PAGE, RANKING, BIASES, INDEX, USAGE)
APPROXIMATE_FROM = 100_000  # items of a database
ENGINES = ("local", "ray")


def main() -> None:
    """Run the command."""
    app.run(rerank, "rerank")


def rerank(cfg: DictConfig) -> None:
    """Rank `cfg.items` for `cfg.queries` under `cfg.criterion`; write the ranking, its record and its page."""
    settings = Settings.of(cfg, "rerank", "a reranking", FILES)
    name, index = choice("criterion"), Index.of(cfg, settings)

    from vsehub.criteria import Auto, ItemBias, NearestNeighbor
    from vsehub.rerank.choose import Tuning
    from vsehub.rerank.table import write_biases, write_ranking

    criterion, tuning = built(name, cfg.criterion), None
    if isinstance(criterion, Auto):
        tuning = Tuning(cfg.tune_queries, cfg.tune_truth, cfg.tune_share)
        criterion = criterion if index is None else criterion.indexable()
    else:
        require(cfg.tune_queries is None, f"tune_queries is for criterion=auto; {name} is not chosen by anything")
    require(
        not settings.scored or cfg.tune_queries is None,
        "tune_queries holds vectors, and scores are given; omit it: a part of the queries with truth is used to choose",
    )
    if index is not None:
        require(
            not settings.scored,
            "index: an index holds vectors, and only scores are given; omit index, or give queries and items",
        )
        index.require(name, criterion.correction if tuning else criterion, settings)
    boolean("biases", cfg.biases)
    require(
        not cfg.biases or tuning is not None or isinstance(criterion, ItemBias),
        f"biases=true: {name} does not rank by the score minus a term of the item; choose one of "
        f"{', '.join(indexed_criteria())}, or leave biases out",
    )
    if cfg.biases and isinstance(criterion, Auto):
        criterion = criterion.indexable()
    # The plain ranking is measured in any case.
    corrections = {} if isinstance(criterion, NearestNeighbor) else {name: criterion}
    with compared(settings, corrections, tuning, cluster_of(cfg, settings)) as found:
        own = (*((BIASES,) if cfg.biases else ()), *(() if index is None else index.files))
        found.out.begin((RESULT, PAGE, RANKING, *own))
        ranked, inputs = found.measured.rankings[-1], found.inputs
        ids = inputs.query_names.ids, inputs.item_names.ids
        write_ranking(found.out / RANKING, ranked.positions, ranked.values, *ids)
        written = [RANKING]
        used = next(iter(found.criteria.values()), NearestNeighbor())
        if cfg.biases:
            write_biases(found.out / BIASES, ranked.item_terms, used.scale, len(inputs.items), ids[1])
            written.append(BIASES)
        if index is not None:
            written += write_index(found, used, index, settings)
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


@dataclass(frozen=True)
class Index:
    """What `index=` asks for: a kind of FAISS index, or a place in a database.

    approximate: whether a database is to search an approximate index; None: from `APPROXIMATE_FROM` items on. columns:
    a table of further columns for a database, or None.
    """

    kind: str
    place: "Place | None" = None
    approximate: bool | None = None
    columns: Path | None = None

    @classmethod
    def of(cls, cfg: DictConfig, settings: Settings) -> "Index | None":
        """That of a command's configuration, None for none. Raises InputError for settings that do not fit."""
        from vsehub.serving.databases.engines import ENGINES, placed
        from vsehub.serving.index_file import KINDS

        kind, uri = cfg.index, None if cfg.index_uri is None else str(cfg.index_uri)
        boolean("index_approximate", cfg.index_approximate, or_none=True)
        require(
            kind is None or kind in (*KINDS, *ENGINES),
            f"index is {kind!r}; choose one of {', '.join((*KINDS, *ENGINES))}, or null for none",
        )
        if kind in ENGINES:
            columns = None if cfg.item_columns is None else Path(str(cfg.item_columns))
            if columns is not None:
                existing("item_columns", columns, "Give a table with the column id and those to store")
            place = placed(kind, uri, str(cfg.index_name), Path(settings.out))
            return cls(kind, place, cfg.index_approximate, columns)
        own = [name for name in ("index_uri", "index_approximate", "item_columns") if cfg[name] is not None]
        verb = "is" if len(own) == 1 else "are"
        require(
            not own, f"{', '.join(own)} {verb} for databases ({', '.join(ENGINES)}), and index is {kind}; omit them"
        )
        return None if kind is None else cls(kind)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it adds to those of a reranking."""
        return (INDEX, USAGE) if self.place is None else (USAGE,)

    def require(self, name: str, criterion: "Criterion", settings: Settings) -> None:
        """Raise InputError for a criterion that an index cannot hold, and if FAISS or the database cannot be used."""
        from vsehub.criteria import ItemBias
        from vsehub.neighbors.faiss import required_faiss

        require(
            isinstance(criterion, ItemBias),
            f"index: {name} does not rank by the score minus a term of the item, which is all that an index can hold; "
            f"choose one of {', '.join(indexed_criteria())}, or omit index",
        )
        if self.place is None:
            required_faiss(f"index={self.kind}", "omit index")
        else:
            from vsehub.serving.databases.collection import require_free

            require_free(self.place, settings.overwrite, settings.output().begun)


def indexed_criteria() -> list[str]:
    """The criteria that an index can hold."""
    from vsehub.criteria import ItemBias

    known = components()
    nodes = {name: plain(OmegaConf.load(known.path("criterion", name))) for name in known.choices("criterion")}
    made = {name: known.find("criterion", node) for name, node in nodes.items()}
    return [name for name, one in made.items() if isinstance(one, type) and issubclass(one, ItemBias)]


def write_index(found: Comparison, criterion: "ItemBias", index: Index, settings: Settings) -> list[str]:
    """Write or fill an index that returns the corrected ranking, and a note on searching it; add both to the record."""
    import torch

    from vsehub.io.files import write_text

    began = time.perf_counter()
    ranked = found.measured.rankings[-1]
    bias = ranked.item_terms[0] if ranked.item_terms else torch.zeros(len(found.inputs.items))
    write = write_faiss if index.place is None else write_database
    found.record["index"], note = write(found, criterion, bias, index, settings)
    found.record["seconds"]["index"] = time.perf_counter() - began
    write_text(found.out / USAGE, note)
    return list(index.files)


def write_faiss(
    found: Comparison, criterion: "ItemBias", bias: "Tensor", index: Index, settings: Settings
) -> tuple[dict[str, Any], str]:
    """Write a FAISS index. Returns its part of the record and the note on searching it."""
    from vsehub.serving import build_index, usage_note

    items = found.inputs.items
    built_index = build_index(items, bias, criterion.scale, index.kind, "building the index", settings.seed)
    built_index.save(found.out / INDEX)
    size = (found.out / INDEX).stat().st_size
    facts = {"kind": index.kind, "file": INDEX, "bytes": size}
    rows = f"`positions` are rows of {found.record['items']['path']}, counted from 0"
    rows += ", in the order of the ids" if found.inputs.item_names.ids is not None else ""
    file = str((found.out.folder / INDEX).absolute())
    code = usage_note(built_index, file, k=settings.k, normalize=settings.normalize)
    note = usage(found.record, INDEX, "Searching needs only FAISS and numpy", code, rows)
    return facts | _measured(built_index, found, criterion, bias, settings), note


def write_database(
    found: Comparison, criterion: "ItemBias", bias: "Tensor", index: Index, settings: Settings
) -> tuple[dict[str, Any], str]:
    """Fill a collection of a database. Returns its part of the record and the note on searching it."""
    from vsehub.serving.databases.collection import Items, facts_of, fill, usage_note
    from vsehub.serving.databases.columns import read_columns
    from vsehub.serving.databases.engines import ENGINES
    from vsehub.serving.databases.kept import Kept

    place, names = index.place, found.inputs.item_names
    assert place is not None
    count = len(found.inputs.items)
    approximate = count >= APPROXIMATE_FROM if index.approximate is None else index.approximate
    ids = [str(row) for row in range(count)] if names.ids is None else names.ids
    ranking = found.record["rankings"][-1]
    fields = None if index.columns is None else read_columns(index.columns, ids)
    items = Items(found.inputs.items, bias, ids, names.labels, fields)
    reference = found.inputs.queries if found.inputs.reference is None else found.inputs.reference
    bank = found.inputs.reference_items is not None
    kept = Kept.of(criterion, found.inputs.items, bias, reference, bank, settings.seed)
    facts = facts_of(
        items,
        criterion.scale,
        criterion=ranking["criterion"],
        parameters=ranking["parameters"],
        reference=found.record["reference"]["set"],
        kept=kept,
        approximate=approximate,
        normalize=settings.normalize,
        fingerprint=found.record["items"]["fingerprint"],
    )
    title = ENGINES[place.engine].title
    with fill(place, facts, items, kept, settings.overwrite, f"filling {title}") as collection:
        size = collection.size()
        uri = place.uri if place.served else str(Path(place.uri).absolute())
        searched = "approximate" if approximate else "exact"
        told = {"kind": f"{title}, {searched}", "uri": place.address, "items": count, "bytes": size}
        rows = f"`ids` are rows of {found.record['items']['path']}, counted from 0"
        rows = rows if names.ids is None else "`ids` are the ids of the items"
        needs = f"Searching needs only {title}'s client and numpy (pip install 'vsehub[{place.engine}]')"
        note = usage(found.record, place.name, needs, usage_note(collection, uri, k=settings.k), rows)
        told |= _measured(collection, found, criterion, bias, settings)
        collection.complete()
    return told, note


def _measured(
    index: "Searchable", found: Comparison, criterion: "ItemBias", bias: "Tensor", settings: Settings
) -> dict[str, Any]:
    """Recall of an index against exact search, and its time for a query, of both rankings."""
    from vsehub.serving import measured_recall, measured_time

    queries, k = found.inputs.queries, settings.k
    recall = measured_recall(index, queries, found.inputs.items, bias, criterion.scale, k, seed=settings.seed)
    return {"recall": {"k": k} | recall, "milliseconds": measured_time(index, queries, k, seed=settings.seed)}


def usage(record: dict[str, Any], name: str, needs: str, code: str, rows: str) -> str:
    """A note on searching the index `name` without vsehub. needs: with what. rows: what the results are."""
    items, ranking = record["items"], record["rankings"][-1]
    reference = "" if ranking["reference"] == "none" else f", its reference {record['reference']['set']}"
    if record["reference_items"] is not None:
        reference += f", its reference items {record['reference_items']['set']}"
    return (
        f"# Searching {name}\n\n"
        f"The {items['rows']:,} vectors of {items['path']}, ranked by {ranking['criterion']}{reference}. {needs}:\n\n"
        f"```python\n{code}```\n\n"
        f"{rows}.\n"
    )
