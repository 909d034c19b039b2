"""`vsehub index`: an index of a reranking: a FAISS file or a collection in a database, with a note on searching it."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import boolean, existing, one_of, require
from vsehub.data.vectors.paths import require_vectors, split_path
from vsehub.io.files import write_text

if TYPE_CHECKING:
    from vsehub.cli.result import Result
    from vsehub.serving.databases.engines import Place

INDEX, USAGE = "index.faiss", "USAGE.md"
FAISS = ("flat", "ivf", "hnsw")
APPROXIMATE_FROM = 100_000  # items of a database
LEAST_RECALL = 0.95  # below which the setting that finds 99 % of the best is said


def index(cfg: DictConfig) -> None:
    """Store the items of `cfg.result` and their biases in `cfg.engine`."""
    from vsehub.serving.databases.engines import ENGINES, placed

    one_of("engine", cfg.engine, (*FAISS, *ENGINES))
    one_of("only", cfg.only, (None, "bias", "missing"))
    boolean("approximate", cfg.approximate, or_none=True)
    own = [name for name in ("uri", "approximate", "item_columns", "only") if cfg[name] is not None]
    require(cfg.engine in ENGINES or not own, f"{', '.join(own)}: for databases; omit, or give another engine")
    place = None
    if cfg.engine in ENGINES:
        uri = None if cfg.uri is None else str(cfg.uri)
        place = placed(cfg.engine, uri, str(cfg.collection), Path(str(cfg.result)))
    changes = {name: str(cfg[name]) for name in ("queries", "items", "reference") if cfg[name] is not None}
    for name, path in changes.items():
        require_vectors(name, split_path(path)[0])
    if cfg.item_columns is not None:
        existing("item_columns", Path(str(cfg.item_columns)), "Give a table with the column id and those to store")

    from vsehub.cli.result import Result

    began, result = time.perf_counter(), Result(str(cfg.result), changes)
    files = [USAGE] if place else [INDEX, USAGE]
    with result.extended(files, cfg.overwrite):
        if place is None:
            told, note = faiss_index(result, cfg)
        else:
            told, note = (
                bias_alone(result, place, cfg.only == "missing") if cfg.only else collection(result, place, cfg)
            )
        write_text(result.folder / USAGE, note)
        result.record["index"] = told
        result.record["seconds"]["index"] = time.perf_counter() - began
    print(described(told))
    print(f"written to {result.folder}: {', '.join(files)}; {result.record['seconds']['index']:.1f} seconds")


def faiss_index(result: "Result", cfg: DictConfig) -> tuple[dict[str, Any], str]:
    """A FAISS index in the result's folder: its part of the record, and the note on searching it."""
    from vsehub.serving import build_index, usage_note

    record, path = result.record, result.folder / INDEX
    built = build_index(result.inputs.sides.items, result.bias, result.criterion.scale, cfg.engine, cfg.seed)
    told = {"kind": cfg.engine, "files": [INDEX], **measured(built, result, cfg.seed)}
    built.save(path)
    code = usage_note(built, str(path.absolute()), record["k"], record["inputs"]["normalize"])
    code += accepted(record)
    rows = f"`positions` are rows of {record['items']['path']}, counted from 0"
    rows += ", in the order of the ids" if result.inputs.item_names.ids is not None else ""
    told["bytes"] = path.stat().st_size
    return told, usage(result, INDEX, "Searching needs only FAISS and numpy", code, rows)


def collection(result: "Result", place: "Place", cfg: DictConfig) -> tuple[dict[str, Any], str]:
    """A filled collection: its part of the record, and the note on searching it."""
    from vsehub.serving.databases.collection import fill, item_table, usage_note
    from vsehub.serving.databases.columns import read_columns
    from vsehub.serving.databases.engines import ENGINES

    record, sides, names = result.record, result.inputs.sides, result.inputs.item_names
    items, ids = len(sides.items), item_ids(result)
    approximate = items >= APPROXIMATE_FROM if cfg.approximate is None else cfg.approximate
    further = None if cfg.item_columns is None else read_columns(Path(str(cfg.item_columns)), ids)
    columns, title = item_table(ids, names.labels, further), ENGINES[place.engine].title
    rates = (record["calibration"] or {"rates": []})["rates"]
    with fill(
        place,
        sides.items,
        result.bias,
        columns,
        sides.seen,
        criterion=result.name,
        rule=result.criterion,
        reference_name=record["reference"]["set"],
        approximate=approximate,
        normalize=record["inputs"]["normalize"],
        thresholds={repr(one["false_accept"]): one["threshold"] for one in rates},
        seed=cfg.seed,
        overwrite=cfg.overwrite,
    ) as filled:
        kind = f"{title}, {'approximate' if approximate else 'exact'}"
        told = {"kind": kind, "uri": place.address, "items": items, "bytes": place.bytes}
        told |= measured(filled, result, cfg.seed)
        rows = "`ids` are the ids of the items"
        rows = rows if names.ids is not None else f"`ids` are rows of {record['items']['path']}, counted from 0"
        rows += ". Items that `vsehub add` adds are found by the same lines, those that it removes no longer.\n"
        rows += "To replace the collection while it is searched, fill another `collection` and switch your alias to it"
        needs = f"Searching needs only {title}'s client and numpy (pip install 'vsehub[{place.engine}]')"
        note = usage(result, place.name, needs, usage_note(filled, columns, record["k"]) + accepted(record), rows)
        filled.complete()
    return told, note


def bias_alone(result: "Result", place: "Place", missing: bool) -> tuple[dict[str, Any], str]:
    """Write the biases into the user's collection; returns the part of the record, and the note.

    missing: whether only items without a bias get theirs.
    """
    from vsehub.serving.databases.biases import bias_note, write_biases

    count = write_biases(place, item_ids(result), result.bias, missing)
    told = {"kind": f"biases in {place.engine}", "uri": place.address, "items": count}
    normalize = result.record["inputs"]["normalize"]
    code = bias_note(place, result.criterion.scale, result.record["k"], normalize=normalize)
    return told, usage(result, place.name, f"It now has the bias of {count:,} items", code, "Nothing else was changed")


def measured(index: Any, result: "Result", seed: int) -> dict[str, Any]:
    """Recall of an index against exact search, and its time for a query, of both rankings.

    Where the recall is low, "effort" is the setting that finds 99 %, its value and the recall; None for no such value.
    """
    from vsehub.serving import measured_recall, measured_time
    from vsehub.serving.index import effort_for

    sides, k = result.inputs.sides, result.record["k"]
    given = index, sides.queries, sides.items, result.bias, result.criterion.scale, k
    recall = measured_recall(*given, seed=seed)
    found = {"recall": {"k": k} | recall, "milliseconds": measured_time(index, sides.queries, k, seed=seed)}
    return found if recall["corrected"] >= LEAST_RECALL else found | {"effort": effort_for(*given, seed=seed)}


def item_ids(result: "Result") -> list[str]:
    """The ids of the items; their row numbers where there are none."""
    names = result.inputs.item_names
    return list(map(str, range(names.rows))) if names.ids is None else list(names.ids)


def described(told: dict[str, Any]) -> str:
    """An index in words."""
    if "recall" not in told:
        return f"{told['kind']}: {told['items']:,} items at {told['uri']}"
    recall, times, effort = told["recall"], told["milliseconds"], told.get("effort")
    more = "" if effort is None else f"; {effort[0]}={effort[1]} in USAGE.md finds {effort[2]:.1%}"
    return (
        f"index ({told['kind']}): it finds {recall['corrected']:.1%} of the {recall['k']} best, "
        f"{recall['plain']:.1%} of the plain ranking's; {times['corrected']:.3g} ms a query, plain "
        f"{times['plain']:.3g}{more}"
    )


def accepted(record: dict[str, Any]) -> str:
    """The lines of a note that apply the thresholds of `vsehub calibrate`; "" without any."""
    if record["calibration"] is None:
        return ""
    rates = {one["false_accept"]: one["threshold"] for one in record["calibration"]["rates"]}
    return (
        f"thresholds = {rates}  # rate -> score; void once items have come or gone\n"
        f"accepted = scores[:, 0] > thresholds[{max(rates)}]  # False: nothing here; of the queries without an answer "
        "at most that rate is accepted\n"
    )


def usage(result: "Result", name: str, needs: str, code: str, rows: str) -> str:
    """A note on searching the index `name` without vsehub. needs: with what. rows: what the results are."""
    record = result.record
    reference = {record[side]["set"] for side in ("reference", "reference_items") if record[side]} - {"none"}
    fitted = f", its reference {', '.join(sorted(reference))}" if reference else ""
    items = f"{record['items']['rows']:,} vectors of {record['items']['path']}"
    about = f"The {items}, ranked by {result.name}{fitted}. {needs}"
    return f"# Searching {name}\n\n{about}:\n\n```python\n{code}```\n\n{rows}.\n"
