"""`vsehub index`: an index of a reranking: a FAISS file or a collection in a database, with a note on searching it."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from vsehub.checks import boolean, one_of, require
from vsehub.cli.embeddings import extend_result
from vsehub.cli.nodes import require_unset
from vsehub.io.files import write_text
from vsehub.report.tables import markdown_text
from vsehub.serving.databases.engines import ENGINES, Location, location_of

if TYPE_CHECKING:  # torch takes two seconds to import: a mistyped engine is reported before
    from vsehub.ranking.result import Result

INDEX, USAGE = "index.faiss", "USAGE.md"
FAISS = ("flat", "ivf", "hnsw")
APPROXIMATE_FROM = 100_000  # items of a database
ENOUGH = 0.95  # recall of the corrected ranking, below which an index looks further


def index(cfg: DictConfig) -> None:
    """Store the items of `cfg.result` and their biases in `cfg.engine`."""
    one_of("engine", cfg.engine, (*FAISS, *ENGINES))
    one_of("only", cfg.only, (None, "bias", "missing"))
    boolean("approximate", cfg.approximate, or_none=True)
    in_database = cfg.engine in ENGINES
    of_databases = ("uri", "collection", "approximate", "only")
    require_unset(cfg, of_databases, f"engine={cfg.engine}, a FAISS file", unless=in_database)
    require_unset(cfg, ("approximate", "false_accept"), f"only={cfg.only}", unless=cfg.only is None)
    location = location_of(cfg.engine, cfg.uri, cfg.collection, Path(str(cfg.result))) if in_database else None

    from vsehub.ranking.result import Result

    result = Result(str(cfg.result), {name: cfg[name] for name in ("queries", "items", "reference")})
    require(
        cfg.false_accept in (None, *result.rates),
        f"false_accept is {cfg.false_accept}; {result.folder} is calibrated for {list(result.rates) or 'no rate'}. "
        "Give vsehub calibrate with that rate first",
    )
    note_name = "USAGE-bias.md" if cfg.only else USAGE
    files = [note_name] if location else [INDEX, note_name]
    with extend_result(result, files, cfg.overwrite or cfg.only is not None) as out:
        if location is None:
            entry, note = build_faiss_index(result, cfg, out / INDEX)
        else:
            entry, note = (store_biases if cfg.only else fill_collection)(result, location, cfg)
        write_text(out / note_name, note)
        result.record["index"] = entry
    print(f"index ({entry['kind']}): {quality_in_words(entry)}; {entry['items']:,} items")
    print(f"written to {result.folder}: {', '.join(files)}")


def quality_in_words(entry: dict[str, Any]) -> str:
    """The time and recall of an index; for biases only, which were not searched, what happens to other rows."""
    if "recall" not in entry:
        return "rows that the result does not hold stay without a bias, and searches leave them out"
    plain, corrected, k = (entry["recall"][name] for name in ("plain", "corrected", "k"))
    time = entry["milliseconds"]["corrected"]
    advice = (
        "" if corrected >= ENOUGH else " (TOO FEW: raise nprobes or ef in USAGE.md, or fill with approximate=false)"
    )
    return (
        f"in {time:.2g} ms a query it finds {corrected:.1%} of the {k} best, {plain:.1%} of the plain ranking's{advice}"
    )


def build_faiss_index(result: "Result", cfg: DictConfig, path: Path) -> tuple[dict[str, Any], str]:
    """Save a FAISS index as `path`; returns its part of the record, and the note on searching it."""
    from vsehub.serving import build_index, usage_note

    record = result.record
    items = result.inputs.sides.items
    faiss_index = build_index(items, result.bias, result.criterion.scale, cfg.engine)
    entry = {"kind": cfg.engine, "files": [INDEX], "items": len(items), **search_quality(faiss_index, result)}
    while entry["recall"]["corrected"] < ENOUGH and faiss_index.look_further():
        entry |= search_quality(faiss_index, result)
    faiss_index.save(path)
    entry["bytes"] = path.stat().st_size
    search = usage_note(faiss_index, INDEX, record["k"], record["inputs"]["normalize"])
    order = ", in the order of the ids" if result.inputs.item_names.ids is not None else ""
    ending = f"`positions` are rows of {markdown_text(str(record['items'].get('path')))}, counted from 0{order}"
    return entry, usage(
        result,
        INDEX,
        "Searching needs only FAISS and numpy (pip install faiss-cpu numpy)",
        search + threshold_code(result, cfg.false_accept),
        ending,
    )


def fill_collection(result: "Result", location: Location, cfg: DictConfig) -> tuple[dict[str, Any], str]:
    """Fill a collection; returns its part of the record, and the note on searching it."""
    from vsehub.serving.databases.collection import Fitted, Items, fill, usage_note

    record, sides, names = result.record, result.inputs.sides, result.inputs.item_names
    items = Items(sides.items, item_ids(result), names.labels, record["inputs"]["normalize"])
    fitted = Fitted(result.name, result.criterion, result.bias, sides.reference_queries, result.reference_text)
    title = ENGINES[location.engine].title
    approximate = len(items.ids) >= APPROXIMATE_FROM if cfg.approximate is None else cfg.approximate
    with fill(location, items, fitted, approximate, cfg.overwrite) as filled:
        kind = f"{title}, {'approximate' if approximate else 'exact'}"
        entry = {"kind": kind, "uri": location.title, "items": len(items.ids), **search_quality(filled, result)}
        code = usage_note(filled, result.folder, record["k"]) + threshold_code(result, cfg.false_accept)
    ending = (
        f"`ids` are {'the ids of the items' if names.ids else 'rows of the items, counted from 0'}. Items that "
        "`vsehub add` adds are found by the same lines, those that it removes no longer"
    )
    remark = f"Searching needs only {title}'s client and numpy (pip install {ENGINES[location.engine].client} numpy)"
    return entry, usage(result, location.name, remark, code, ending)


def store_biases(result: "Result", location: Location, cfg: DictConfig) -> tuple[dict[str, Any], str]:
    """Write the biases into the user's collection; returns the part of the record, and the note."""
    from vsehub.serving.databases.biases import bias_note, write_biases

    count = write_biases(location, item_ids(result), result.bias, cfg.only == "missing")
    entry = {"kind": f"biases in {location.engine}", "uri": location.title, "items": count}
    record = result.record
    code = bias_note(
        location, result.folder, result.criterion.scale, record["k"], normalize=record["inputs"]["normalize"]
    )
    return entry, usage(
        result, location.name, f"It now has the bias of {count:,} items", code, "Nothing else was changed"
    )


def search_quality(index: Any, result: "Result") -> dict[str, Any]:
    """Recall of an index against exact search, and its time for a query, of both rankings."""
    from vsehub.serving import measured_recall, measured_time

    sides = result.inputs.sides
    k = result.record["k"]
    recall = measured_recall(index, sides.queries, sides.items, result.bias, result.criterion.scale, k)
    return {"recall": {"k": k} | recall, "milliseconds": measured_time(index, sides.queries, k)}


def item_ids(result: "Result") -> list[str]:
    """The ids of the items, or their row numbers."""
    names = result.inputs.item_names
    return list(map(str, range(names.rows))) if names.ids is None else list(names.ids)


def threshold_code(result: "Result", rate: float | None) -> str:
    """The code in a note that applies the threshold of a false-accept rate; "" without a rate."""
    if rate is None:
        return ""
    values = result.rates[rate]
    return (
        f"# Accepts on average at most {rate:.1%} of the queries without an answer, and {values['accepted']:.1%} of "
        "the\n# calibration queries, which have one. Void once items have come or gone.\n"
        f"accepted = scores[:, 0] > {values['threshold']!r}  # False: nothing here\n"
    )


def usage(result: "Result", name: str, remark: str, code: str, ending: str) -> str:
    """A note on searching the index `name` without vsehub.

    remark: the sentence before the code, such as which packages it needs. code: the Python code. ending: the sentence
    after it, such as what its results are.
    """
    items, reference = (markdown_text(text) for text in (result.items_path, result.reference_text))
    about = f"The {len(result.bias):,} vectors of {items}, ranked by {result.name} (reference: {reference}). {remark}"
    return f"# Searching {name}\n\n{about}. Run in this file's folder:\n\n```python\n{code}```\n\n{ending}.\n"
