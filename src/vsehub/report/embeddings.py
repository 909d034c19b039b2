"""The page of `vsehub rerank` and `vsehub diagnose`: what hubs there are, and what the corrections make of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.files import write_text
from vsehub.records import EMBEDDINGS, checked_record
from vsehub.report import embedding_facts as facts
from vsehub.report import embedding_findings as findings
from vsehub.report import embedding_origin as origin
from vsehub.report.bars import bars
from vsehub.report.embedding_table import column_notes, rankings_table
from vsehub.report.occurrence_curves import occurrence_curves, ranking_colours, share_text
from vsehub.report.templates import render_page
from vsehub.report.thumbnails import Thumbnails

Pictures = Mapping[str, str | Path | np.ndarray]


def write_embeddings_report(record: dict, out: str | Path, pictures: Pictures | None = None) -> Path:
    """Write the page of a record as index.html in the folder `out`, atomically, and return its path."""
    path = Path(out) / "index.html"
    write_text(path, embeddings_page(record, pictures))
    return path


def embeddings_page(record: dict, pictures: Pictures | None = None) -> str:
    """One HTML file that carries its figure and thumbnails and needs no network.

    record: what result.json of the two commands holds. pictures: what each "image" of the record's hubs stands for, a
    file or pixels (3, H, W); None where it is a file's path itself. What is null in the record is left out. Raises
    InputError for a record of another schema.
    """
    checked_record(record, EMBEDDINGS, "the record", "Run the command again")
    k = facts.neighbourhood(record)
    rankings = record["rankings"]
    curves = {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}
    entries = Entries(record, pictures)
    hubs = [entries.card(entry) for entry in record.get("hubs") or []]
    antihubs = record.get("antihubs") or {}
    examples = [entries.card(entry) for entry in antihubs.get("examples") or []]
    entries.thumbnails.warn()
    return render_page(
        "embeddings.html.j2",
        title=facts.page_title(record),
        summary=findings.findings(record),
        k=k,
        fair=share_text(facts.fair_share(record)),
        best=None if (best := findings.gentlest(record)) is None else facts.spoken(rankings[best]["criterion"]),
        tiles=findings.tiles(record),
        worse=findings.worsened(record),
        sentences=[text for text in (facts.reference_sentence(record), facts.truth_sentence(record)) if text],
        rankings=rankings_table(record),
        columns=column_notes(record),
        curves=occurrence_curves(curves, k, facts.fair_share(record)),
        hubs=hubs,
        never=bars(entries.colours, antihubs["count"], record["items"]["rows"]) if antihubs.get("count") else [],
        examples=examples,
        has_wrong=any(entry.get("wrong") for entry in record.get("hubs") or []),
        pictured=entries.pictured,
        missing=entries.thumbnails.missing,
        sides=origin.sides(record),
        origin=origin.made_with(record),
        index=origin.index_facts(record),
        command=record.get("command"),
    )


class Entries:
    """Items of the record as the page shows them; thumbnails that cannot be made are counted."""

    def __init__(self, record: dict, pictures: Pictures | None):
        self.colours = ranking_colours([ranking["criterion"] for ranking in record["rankings"]])
        self._pictures = pictures
        shown = [*(record.get("hubs") or []), *((record.get("antihubs") or {}).get("examples") or [])]
        self._scale = max((max(entry["occurrences"]) for entry in shown), default=1)
        self.pictured = any(entry.get("image") for entry in shown)
        self.thumbnails = Thumbnails()

    def card(self, entry: dict) -> dict[str, Any]:
        """Name, label, thumbnail, and how often the item is found under each ranking."""
        name = str(entry["item"] if entry.get("id") is None else entry["id"])
        return {
            "name": name,
            "label": entry.get("label"),
            "queries": [_named(query) for query in entry.get("queries") or []],
            "thumbnail": self._thumbnail(entry.get("image"), name) if self.pictured else None,
            "bars": bars(self.colours, entry["occurrences"], self._scale, entry.get("wrong")),
        }

    def _thumbnail(self, image: str | None, name: str) -> str | None:
        picture = image if self._pictures is None else self._pictures.get(image)
        if picture is None:
            return self.thumbnails.absent(name, "no file")
        return self.thumbnails(picture, name)


def _named(query: dict) -> str:
    """A query by its label, else its id, else its row."""
    told = (query.get(key) for key in ("label", "id", "query"))
    return next(str(text) for text in told if text is not None)
