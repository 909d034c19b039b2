"""The page of `vsehub rerank` and `vsehub diagnose`: hubness before and after the corrections."""

from pathlib import Path

from vsehub.report.comparison import evidence, fair_share, largest_k, metrics, rankings_table, shown_correction
from vsehub.report.pages.curves import fair_share_text, occurrence_curves
from vsehub.report.pages.templates import data_url, render_page, thumbnail
from vsehub.report.pictures import ranking_colours
from vsehub.report.tables import code_text, hardware_text, versions_text

SOURCES = ("ranking", "against", "scores", "queries", "items")


def origin(record: dict) -> list[tuple[str, str]]:
    """The origin of the record: files of vectors or scores, time, machine and versions: (name, text)."""
    files = [
        (name, f"{side['path']}, {side['rows']:,} × {side.get('dim') or side['columns']:,}, {side['dtype']}")
        for name in (*SOURCES, "reference", "reference_items")
        if "path" in (side := record.get(name) or {})
    ]
    return [
        *files,
        ("started", record["started"]),
        ("seconds", ", ".join(f"{name.replace('_', ' ')} {value:.1f}" for name, value in record["seconds"].items())),
        ("hardware", hardware_text(record["hardware"])),
        ("code", code_text(record)),
        ("versions", versions_text(record["versions"])),
        *((f"index {name}", str(fact)) for name, fact in (record["index"] or {}).items()),
    ]


def tiles(record: dict) -> list[tuple[str, str, str | None]]:
    """The values at the top of the page: name, before and after `shown_correction`."""
    corrected = shown_correction(record)
    shown = [metric for metric in metrics(record) if metric.key.split("_")[0] in ("largest", "antihub", "skew", "r1")]
    plain = record["rankings"][0]
    return [
        (metric.name, metric.text(plain), None if corrected is None else metric.text(corrected)) for metric in shown
    ]


def embeddings_page(record: dict) -> str:
    """One HTML file that contains its plot and thumbnails and needs no network. record: the contents of result.json."""
    k = largest_k(record)
    rankings = record["rankings"]
    fair = fair_share(record)
    files = [record[side] for side in SOURCES if record.get(side)]
    pictures = [thumbnail(hub["image"]) if hub["image"] else None for hub in record["hubs"]]
    histograms = {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}
    return render_page(
        "embeddings.html.j2",
        record=record,
        lists=bool(record.get("ranking")),
        title=f"Hubness: {' and '.join(Path(file['path']).name for file in files if 'path' in file)}",
        summary=f"{record['queries']['rows']:,} queries, {record['items']['rows']:,} items",
        k=k,
        fair=fair_share_text(fair),
        corrected=shown_correction(record),
        tiles=tiles(record),
        evidence=evidence(record),
        rankings=rankings_table(record),
        columns=[(metric.name, metric.note) for metric in metrics(record)],
        curves=occurrence_curves(histograms, k, fair),
        colours=ranking_colours(list(histograms)),
        thumbnails=[picture and data_url("image/jpeg", picture) for picture in pictures],
        scale=max(max(hub["occurrences"]) for hub in record["hubs"]),
        origin=origin(record),
    )
