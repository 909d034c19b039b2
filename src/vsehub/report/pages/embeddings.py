"""The page of `vsehub rerank` and `vsehub diagnose`: hubness before and after the corrections."""

from pathlib import Path
from typing import Any

from vsehub.io.address import masked
from vsehub.io.files import write_text
from vsehub.report.comparison import evidence, fair_share, metrics, neighbourhood, rankings_table
from vsehub.report.pages.templates import bars, data_url, render_page, thumbnail
from vsehub.report.plots import occurrence_curves, ranking_colours, share_text
from vsehub.report.tables import code_text, hardware_text, versions_text


def page_title(record: dict) -> str:
    """The page's title, with the names of the files."""
    if record["scores"]:
        return f"Hubness under the scores of {Path(record['scores']['path']).name}"
    queries, items = (Path(record[side]["path"]).name for side in ("queries", "items"))
    return f"Hubness of {items} searched with {queries}"


def origin(record: dict) -> list[tuple[str, str]]:
    """The origin of the record: files of vectors or scores, time, machine and versions: (name, text)."""
    facts = []
    for name in ("scores", "queries", "items", "reference", "reference_items"):
        side = record[name] or {}
        if "path" in side:
            shape = f"{side['rows']:,} × {side.get('dim') or side['columns']:,}"
            facts.append((name.replace("_", " "), f"{side['path']}, {shape}, {side['dtype']}, {side['fingerprint']}"))
    return [
        *facts,
        ("started", record["started"]),
        ("time", ", ".join(f"{name.replace('_', ' ')} {value:.1f} s" for name, value in record["seconds"].items())),
        ("hardware", hardware_text(record["hardware"])),
        ("code", code_text(record)),
        ("versions", versions_text(record["versions"])),
    ]


def shown_correction(record: dict) -> dict | None:
    """The ranking that the top of the page compares with the plain one: CSLS if measured, else the first correction."""
    found = record["rankings"][1:]
    return next((one for one in found if one["criterion"] == "csls"), found[0] if found else None)


def tiles(record: dict) -> list[tuple[str, str, str | None]]:
    """The values at the top of the page: name, before and after `shown_correction`."""
    k, corrected = neighbourhood(record), shown_correction(record)
    names = {
        f"largest_hub_{k}": ("Largest hub", ""),
        f"antihub_rate_{k}": ("Items never found", "\N{NO-BREAK SPACE}%"),
        f"skew_{k}": (f"Skewness of N_{k}", ""),
        "r1": ("R@1", "\N{NO-BREAK SPACE}%"),
    }
    found, known = [], {metric.key: metric for metric in metrics(record)}
    for key, (name, unit) in names.items():
        if metric := known.get(key):
            after = None if corrected is None else metric.text(metric.of(corrected)) + unit
            found.append((name, metric.text(metric.of(record["rankings"][0])) + unit, after))
    return found


def write_embeddings_report(record: dict, out: str | Path) -> Path:
    """Write the page of a record as index.html in the folder `out`, atomically, and return its path."""
    path = Path(out) / "index.html"
    write_text(path, masked(embeddings_page(record)))
    return path


def embeddings_page(record: dict) -> str:
    """One HTML file that contains its plot and thumbnails and needs no network. record: the contents of result.json."""
    k, rankings, never = neighbourhood(record), record["rankings"], record["antihubs"]
    colours = ranking_colours([ranking["criterion"] for ranking in rankings])
    entries = [*record["hubs"], *never["examples"]]
    scale = max(max(entry["occurrences"]) for entry in entries)
    pictured = any(entry["image"] for entry in entries)

    def card(entry: dict) -> dict[str, Any]:
        content = thumbnail(entry["image"]) if entry["image"] else None
        return {
            "name": named(entry, "item"),
            "label": entry["label"],
            "queries": [query["label"] or named(query, "query") for query in entry["queries"]],
            "thumbnail": content and data_url("image/jpeg", content),
            "bars": bars(colours, entry["occurrences"], scale, entry["wrong"]),
        }

    hubs, examples = list(map(card, record["hubs"])), list(map(card, never["examples"]))
    values = {
        "title": page_title(record),
        "summary": f"{record['queries']['rows']:,} queries, {record['items']['rows']:,} items",
        "k": k,
        "fair": share_text(fair_share(record)),
        "corrected": (shown_correction(record) or {}).get("criterion"),
        "tiles": tiles(record),
        "evidence": evidence(record),
        "rankings": rankings_table(record),
        "columns": [(metric.name, metric.note) for metric in metrics(record)],
        "curves": occurrence_curves(
            {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}, k, fair_share(record)
        ),
        "hubs": hubs,
        "made": [
            (named(hub, "item"), ranking["criterion"], hub) for ranking in rankings for hub in ranking["hubs_made"]
        ],
        "never": bars(colours, never["count"], record["items"]["rows"]),
        "examples": examples,
        "has_wrong": record["truth"] is not None,
        "pictured": pictured,
        "missing": pictured and sum(one["thumbnail"] is None for one in [*hubs, *examples]),
        "origin": origin(record),
        "index": [(name, str(fact)) for name, fact in (record["index"] or {}).items()],
        "next": record.get("next", []),
        "command": record["command"],
    }
    return render_page("embeddings.html.j2", **values)


def named(entry: dict, row: str) -> str:
    """The id of an item or query, else its row."""
    return f"row {entry[row]}" if entry["id"] is None else entry["id"]
