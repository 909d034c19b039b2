"""The page of `vsehub rerank` and `vsehub diagnose`: hubness before and after the corrections."""

from pathlib import Path
from typing import Any

from vsehub.io.files import write_text
from vsehub.io.records import EMBEDDINGS, checked_record
from vsehub.report.comparison import evidence, fair_share, metrics, neighbourhood, rankings_table, verdict_text
from vsehub.report.pages.templates import Thumbnails, bars, render_page
from vsehub.report.plots import occurrence_curves, ranking_colours, share_text
from vsehub.report.tables import code_text, hardware_text, versions_text

SIDES = ("queries", "items")
LEVELS = ("ok", "warn", "fail")


def page_title(record: dict) -> str:
    """The page's title, with the names of the files."""
    if scores := record.get("scores"):
        return f"Hubness under the scores of {Path(str(scores.get('path') or 'memory')).name}"
    names = [Path(str(record[side].get("path") or side)).name for side in SIDES]
    return f"Hubness of {names[1]} searched with {names[0]}"


def origin(record: dict) -> list[tuple[str, str]]:
    """The origin of the record: files of vectors or scores, time, machine and versions: (name, text)."""
    facts = []
    for name in ("scores", *SIDES, "reference", "reference_items"):
        side = record.get(name) or {}
        if side.get("path") or side.get("fingerprint"):
            shape = " × ".join(f"{side[key]:,}" for key in ("rows", "dim", "columns") if side.get(key))
            known = (side.get("path") or "in memory", shape, side.get("dtype"), side.get("fingerprint"))
            facts.append((name.replace("_", " "), ", ".join(str(one) for one in known if one)))
    seconds = record.get("seconds") or {}
    spent = [f"{name.replace('_', ' ')} {value:.1f} s" for name, value in seconds.items() if value is not None]
    facts += [
        ("started", record.get("started") or ""),
        ("time", ", ".join(spent)),
        ("hardware", hardware_text(record.get("hardware"))),
        ("code", code_text(record)),
        ("versions", versions_text(record.get("versions"))),
    ]
    return [(name, str(text)) for name, text in facts if text]


def _fact(name: str, value: object) -> str:
    if name == "bytes" and isinstance(value, int):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(key, part)}" for key, part in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


def shown_correction(record: dict) -> dict | None:
    """The ranking that the top of the page compares with the plain one: CSLS if measured, else the first correction."""
    found = record["rankings"][1:]
    return next((one for one in found if one["criterion"] == "csls"), found[0] if found else None)


def tiles(record: dict) -> list[tuple[str, str, str | None]]:
    """The values at the top of the page: name, before and after `shown_correction`."""
    k, plain, corrected = neighbourhood(record), record["rankings"][0], shown_correction(record)
    names = {
        f"largest_hub_{k}": ("Largest hub", ""),
        f"antihub_rate_{k}": ("Items never found", "\N{NO-BREAK SPACE}%"),
        f"skew_{k}": (f"Skewness of N_{k}", ""),
        "r1": ("R@1", "\N{NO-BREAK SPACE}%"),
    }
    found, known = [], {metric.key: metric for metric in metrics(record)}
    for key, (name, unit) in names.items():
        if metric := known.get(key):
            before, after = (None if one is None else metric.text(metric.of(one)) + unit for one in (plain, corrected))
            found.append((name, str(before), after))
    return found


def worse_verdict(record: dict) -> str | None:
    """The verdict on the corrected ranking if it is worse than that on the plain one."""
    corrected = record.get("verdict_corrected")
    worse = corrected and LEVELS.index(corrected["level"]) > LEVELS.index(record["verdict"]["level"])
    return verdict_text(corrected) if corrected and worse else None


def write_embeddings_report(record: dict, out: str | Path) -> Path:
    """Write the page of a record as index.html in the folder `out`, atomically, and return its path."""
    path = Path(out) / "index.html"
    write_text(path, embeddings_page(record))
    return path


def embeddings_page(record: dict) -> str:
    """One HTML file that contains its plot and thumbnails and needs no network.

    record: the contents of result.json; entries that are null are omitted. Raises InputError for a record of another
    schema.
    """
    checked_record(record, EMBEDDINGS, "the record", "Run the command again")
    k, rankings, antihubs = neighbourhood(record), record["rankings"], record.get("antihubs") or {}
    hubs, examples = record.get("hubs") or [], antihubs.get("examples") or []
    colours = ranking_colours([ranking["criterion"] for ranking in rankings])
    scale = max((max(entry["occurrences"]) for entry in [*hubs, *examples]), default=1)
    pictured = any(entry.get("image") for entry in [*hubs, *examples])
    thumbnails = Thumbnails()

    def card(entry: dict) -> dict[str, Any]:
        name = _named(entry, "item")
        return {
            "name": name,
            "label": entry.get("label"),
            "queries": [query.get("label") or _named(query, "query") for query in entry.get("queries") or []],
            "thumbnail": thumbnails(entry.get("image") or "", name) if pictured else None,
            "bars": bars(colours, entry["occurrences"], scale, entry.get("wrong")),
        }

    values = {
        "title": page_title(record),
        "summary": f"{record['queries']['rows']:,} queries, {record['items']['rows']:,} items",
        "k": k,
        "fair": share_text(fair_share(record)),
        "corrected": (shown_correction(record) or {}).get("criterion"),
        "worse": worse_verdict(record),
        "tiles": tiles(record),
        "evidence": evidence(record),
        "rankings": rankings_table(record),
        "columns": [(metric.name, metric.note) for metric in metrics(record)],
        "curves": occurrence_curves(
            {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}, k, fair_share(record)
        ),
        "hubs": list(map(card, hubs)),
        "made": [
            (_named(hub, "item"), ranking["criterion"], hub)
            for ranking in rankings
            for hub in ranking.get("hubs_made") or []
        ],
        "never": bars(colours, antihubs["count"], record["items"]["rows"]) if antihubs.get("count") else [],
        "examples": list(map(card, examples)),
        "has_wrong": any(entry.get("wrong") for entry in hubs),
        "pictured": pictured,
        "missing": len(thumbnails.missing),
        "origin": origin(record),
        "index": [(name, _fact(name, fact)) for name, fact in (record.get("index") or {}).items() if fact is not None],
        "next": record.get("next") or [],
        "command": record.get("command"),
    }
    return render_page("embeddings.html.j2", **values)


def _named(entry: dict, row: str) -> str:
    """The id of an item or query, else its row."""
    return f"row {entry.get(row, entry.get('row'))}" if entry.get("id") is None else str(entry["id"])
