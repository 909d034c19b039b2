"""The page of `vsehub rerank` and `vsehub diagnose`: hubness before and after the corrections."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.io.files import write_text
from vsehub.io.records import EMBEDDINGS, checked_record
from vsehub.report.health import (
    calibration_text,
    choice_text,
    parameters,
    queries_left_out,
    rounding_text,
    verdict_text,
)
from vsehub.report.pages.templates import Thumbnails, bars, render_page
from vsehub.report.plots import occurrence_curves, ranking_colours, share_text
from vsehub.report.tables import Cell, ReportTable, code_text, duration, hardware_text, versions_text

SIDES = ("queries", "items")
REFERENCES = {
    "transductive": "the corrections saw the very queries that they rank; give reference queries for queries that come "
    "one at a time",
    "inductive": "the corrections saw none of the queries that they rank",
    "none": "no ranking here looks at other queries",
}


def neighbourhood(record: dict) -> int:
    """The largest k for which occurrences were counted: usually 10, less with fewer items."""
    return max(int(k) for k in record["rankings"][0]["histograms"])


def fair_share(record: dict) -> float:
    """The number of queries that would find each item if all were found equally often."""
    return neighbourhood(record) * record["queries"]["rows"] / record["items"]["rows"]


def evidence(record: dict) -> list[tuple[str, str]]:
    """The reference of the corrections, always named, and the truth of the recalls: (name, text)."""
    reference = record.get("reference") or {}
    kind = reference.get("kind") or "none"
    of = "" if kind == "none" else f", {reference.get('set') or 'not recorded'}"
    rows = f" ({reference['rows']:,} rows)" if kind != "none" and reference.get("rows") else ""
    facts = [("reference", f"{kind}{of}{rows}: {REFERENCES[kind]}")]
    if kind != "none" and reference.get("queries_in_it"):
        facts.append(("in the reference", f"{reference['queries_in_it']:,} of the queries are also in it"))
    if bank := record.get("reference_items"):
        facts.append(("reference items", f"{bank['set']} ({bank['rows']:,} rows)"))
    if truth := record.get("truth"):
        source = truth.get("path") or "memory"
        measured = truth["measured_queries"]
        facts.append(("truth", f"{truth['pairs']:,} pairs in {source} for {measured:,} queries"))
        facts += [("not measured", told) for told in queries_left_out(truth, record.get("choice"))]
    if choice := record.get("choice"):
        facts += choice_text(choice)
    if calibration := record.get("calibration"):
        facts.append(("calibration", calibration_text(calibration, record["queries"]["rows"])))
    rounded = [one for one in record["rankings"] if "rounding" in one]
    facts += [("precision", rounding_text(one["criterion"], one["rounding"])) for one in rounded]
    if verdict := record.get("verdict"):
        facts.append(("verdict on plain search", verdict_text(verdict)))
    return facts


def page_title(record: dict) -> str:
    """The page's title, with the names of the files."""
    if scores := record.get("scores"):
        return f"Hubness under the scores of {Path(str(scores.get('path') or 'memory')).name}"
    names = [Path(str(record[side].get("path") or side)).name for side in SIDES]
    return f"Hubness of {names[1]} searched with {names[0]}"


STEPS = {
    "look_through": "looking through the files",
    "choosing": "choosing the criterion",
    "reference": "reference",
    "search": "search",
    "float32_sample": "a sample in float32",
    "total": "in all",
}


def vectors_table(record: dict) -> ReportTable:
    """One row per file of vectors, or of scores: both sides, and reference queries and items if they are separate."""
    rows = []
    kind, spread, *own = ("scores", "range", "scores") if record.get("scores") else ("vectors", "norms", *SIDES)
    for name in (*own, "reference", "reference_items"):
        facts = record.get(name) or {}
        if facts.get("path") or (name in own and facts):
            shape = " × ".join(f"{facts[key]:,}" for key in ("rows", "dim", "columns") if facts.get(key))
            values = [facts.get("path") or "in memory", shape, facts.get("dtype") or "–"]
            values += [_norms(facts.get(spread)), facts.get("fingerprint") or "–"]
            rows.append([name.replace("_", " "), *map(str, values)])
    return ReportTable([kind, "file", "shape", "type", spread, "fingerprint"], rows, words=6, wrap=True)


def _norms(norms: dict | None) -> str:
    if not norms:
        return "–"
    spread = "{:.4g}".format(norms["least"])
    if norms["most"] != norms["least"]:
        spread += f" to {norms['most']:.4g}"
    return f"{spread}, {100 * norms['unit_share']:.4g} % are 1" if norms.get("unit_share") is not None else spread


def made_with(record: dict) -> list[tuple[str, str]]:
    """The origin of the record: time, machine, versions and command: (name, text)."""
    seconds = record.get("seconds") or {}
    spent = [f"{STEPS.get(name, name)} {_time(value)}" for name, value in seconds.items() if value is not None]
    known = [
        ("started", record.get("started")),
        ("time", ", ".join(spent)),
        ("hardware", hardware_text(record.get("hardware"))),
        ("code", code_text(record)),
        ("versions", versions_text(record.get("versions"))),
    ]
    return [(name, str(text)) for name, text in known if text]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def index_facts(record: dict) -> list[tuple[str, str]]:
    """The facts of the search index: (name, text); empty if none was built."""
    return [(name, _fact(name, value)) for name, value in (record.get("index") or {}).items() if value is not None]


def _fact(name: str, value: object) -> str:
    if name == "bytes" and isinstance(value, int):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(key, part)}" for key, part in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


class MetricColumn(NamedTuple):
    """A column of the rankings: part of the ranking and key of the metric, heading, factor, decimals and meaning."""

    part: str
    key: str
    heading: str
    scale: float
    decimals: int
    note: str


TRUTH = (
    MetricColumn("truth", "r1", "R@1", 1, 1, "queries whose nearest item answers them"),
    *(
        MetricColumn("truth", f"r{k}", f"R@{k}", 1, 1, f"queries with an answer among the {k} nearest items")
        for k in (5, 10)
    ),
    MetricColumn(
        "truth", "map_r", "mAP@R", 1, 1, "mean average precision of a query's first R items, R being how many answer it"
    ),
    MetricColumn("truth", "r_precision", "R-Prec.", 1, 1, "share of a query's first R items that answer it"),
)
CHANGED = (
    MetricColumn("changed", "first", "first item", 100, 1, "queries whose first item differs from plain similarity's"),
    MetricColumn(
        "changed", "overlap", "kept", 100, 1, "mean share of the plain list that stays in the list, in any order"
    ),
)


def hubness_columns(k: int) -> tuple[MetricColumn, ...]:
    """The columns of hubness at k; shares in %."""
    return tuple(
        MetricColumn("hubness", f"{key}_{k}", heading, scale, decimals, note)
        for key, heading, scale, decimals, note in (
            ("skew", "skew", 1, 2, "skewness of how often items are found; 0 if all are found equally, high with hubs"),
            ("robin_hood", "Robin Hood %", 100, 1, "share of all list places that would have to move to be fair"),
            ("gini", "Gini", 1, 3, "inequality of how often items are found: 0 if all are equal, 1 if one has all"),
            ("antihub_rate", "never found %", 100, 1, "items that are in no list"),
            ("largest_hub", "largest hub", 1, 0, "how many lists the most found item is in"),
            ("bad_share", "wrong %", 100, 1, "list places held by an item that does not answer the query"),
        )
    )


def rankings_table(record: dict) -> ReportTable:
    """The table of the rankings: each value, with its difference from the plain ranking's."""
    rankings = record["rankings"]
    columns = [(over, column) for over, some in _parts(record) for column in some]
    rows: list[list[Cell]] = []
    for number, ranking in enumerate(rankings):
        own: list[Cell] = [(ranking["criterion"], parameters(ranking)), str(ranking.get("reference") or "none")]
        plain = rankings[0] if number else None
        rows.append(own + [_cell(column, ranking, plain) for _, column in columns])
    head = ["ranking", "reference", *(column.heading for _, column in columns)]
    return ReportTable(head, rows, words=2, over=["", "", *(over for over, _ in columns)])


def column_notes(record: dict) -> list[tuple[str, str]]:
    """The meaning of each column of the table: (heading, words)."""
    return [(column.heading, column.note) for _, columns in _parts(record) for column in columns]


def _parts(record: dict) -> list[tuple[str, list[MetricColumn]]]:
    """The columns that some ranking has a value for, under their headings."""
    rankings, k = record["rankings"], neighbourhood(record)
    parts = (
        ("Against the truth, %", TRUTH),
        (f"Hubness at k = {k}", hubness_columns(k)),
        (f"Against {rankings[0]['criterion']}, %", CHANGED if len(rankings) > 1 else ()),
    )
    known = [
        (over, [one for one in some if any(_value(ranking, one) is not None for ranking in rankings)])
        for over, some in parts
    ]
    return [(over, some) for over, some in known if some]


def _value(ranking: dict, column: MetricColumn) -> float | None:
    value = (ranking.get(column.part) or {}).get(column.key)
    return None if value is None else column.scale * value


def _cell(column: MetricColumn, ranking: dict, plain: dict | None) -> Cell:
    value = _value(ranking, column)
    if value is None or (column.part == "changed" and plain is None):
        return "–"
    text = f"{value:,.{column.decimals}f}".replace("-", "−")
    before = None if plain is None or column.part == "changed" else _value(plain, column)
    if before is None:
        return text
    size = f"{abs(value - before):,.{column.decimals}f}"
    sign = "" if not size.strip("0.,") else "+" if value > before else "−"
    return text, f"{sign}{size}"


PERCENT = "\N{NO-BREAK SPACE}%"


class Measure(NamedTuple):
    """A metric by which rankings are judged: its place in the record, and how to show it."""

    name: str
    part: str
    key: str
    scale: float = 1
    decimals: int = 0
    unit: str = ""
    more_is_better: bool = False

    def text(self, value: float) -> str:
        """The value as text."""
        return f"{self._shown(value):,.{self.decimals}f}{self.unit}".replace("-", "−")

    def verdict(self, before: float, after: float) -> str:
        """Whether `after` is "better" or "worse" than `before`; "unchanged" if both are shown alike."""
        gain = self._shown(after) - self._shown(before)
        if not gain:
            return "unchanged"
        return "better" if (gain > 0) == self.more_is_better else "worse"

    def of(self, ranking: dict) -> float | None:
        """The value of a ranking, None if it was not measured."""
        return (ranking.get(self.part) or {}).get(self.key)

    def _shown(self, value: float) -> float:
        return round(self.scale * value, self.decimals) + 0.0  # no negative zero


class LargeValue(NamedTuple):
    """A value in large type: its name, the value before, and the value after the named correction, or None."""

    name: str
    before: str
    after: str | None


def judged(record: dict) -> tuple[Measure, ...]:
    """The measures on which a correction can be better or worse than plain similarity."""
    k = neighbourhood(record)
    return (
        Measure("largest hub", "hubness", f"largest_hub_{k}"),
        Measure(f"skewness of N_{k}", "hubness", f"skew_{k}", decimals=2),
        Measure("R@1", "truth", "r1", decimals=1, unit=PERCENT, more_is_better=True),
    )


def changes_table(record: dict) -> ReportTable:
    """The measures of each correction beside those of plain similarity: the value, and whether it is better."""
    plain, *corrections = record["rankings"]
    measured = [(measure, before) for measure in judged(record) if (before := measure.of(plain)) is not None]
    rows: list[list[Cell]] = [[plain["criterion"], *(measure.text(before) for measure, before in measured)]]
    for ranking in corrections:
        row: list[Cell] = [ranking["criterion"]]
        for measure, before in measured:
            after = measure.of(ranking)
            row.append("–" if after is None else (measure.text(after), measure.verdict(before, after)))
        rows.append(row)
    caption = f"Better or worse than plain similarity; N_{neighbourhood(record)} counts how many queries find an item."
    return ReportTable(["ranking", *(measure.name for measure, _ in measured)], rows, caption)


def shown_correction(record: dict) -> dict | None:
    """The ranking that the top of the page compares with the plain one: CSLS if measured, else the first correction."""
    found = record["rankings"][1:]
    return next((one for one in found if one["criterion"] == "csls"), found[0] if found else None)


def tiles(record: dict) -> list[LargeValue]:
    """The values at the top of the page, before and after `shown_correction`."""
    k, corrected = neighbourhood(record), shown_correction(record)
    largest, skew, recall = judged(record)
    never = Measure("items never found", "hubness", f"antihub_rate_{k}", 100, 1, PERCENT)
    found = []
    for measure in (largest, never, skew, recall):
        before = measure.of(record["rankings"][0])
        after = None if corrected is None else measure.of(corrected)
        if before is not None:
            shown = None if corrected is None else "–" if after is None else measure.text(after)
            found.append(LargeValue(measure.name[0].upper() + measure.name[1:], measure.text(before), shown))
    return found


Pictures = Mapping[str, str | Path | np.ndarray]


def write_embeddings_report(record: dict, out: str | Path, pictures: Pictures | None = None) -> Path:
    """Write the page of a record as index.html in the folder `out`, atomically, and return its path."""
    path = Path(out) / "index.html"
    write_text(path, embeddings_page(record, pictures))
    return path


def embeddings_page(record: dict, pictures: Pictures | None = None) -> str:
    """One HTML file that contains its plot and thumbnails and needs no network.

    record: the contents of result.json. pictures: "image" of the record's hubs -> a file or pixels (3, H, W); None if
    "image" is a path. Entries that are null in the record are omitted. Raises InputError for a record of another
    schema.
    """
    checked_record(record, EMBEDDINGS, "the record", "Run the command again")
    k = neighbourhood(record)
    rankings = record["rankings"]
    curves = {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}
    entries = ItemEntries(record, pictures)
    hubs = [entries.card(entry) for entry in record.get("hubs") or []]
    antihubs = record.get("antihubs") or {}
    examples = [entries.card(entry) for entry in antihubs.get("examples") or []]
    entries.thumbnails.warn()
    return render_page(
        "embeddings.html.j2",
        title=page_title(record),
        summary=f"{record['queries']['rows']:,} queries, {record['items']['rows']:,} items",
        k=k,
        fair=share_text(fair_share(record)),
        corrected=(shown_correction(record) or {}).get("criterion"),
        tiles=tiles(record),
        evidence=evidence(record),
        changes=changes_table(record) if len(rankings) > 1 else None,
        rankings=rankings_table(record),
        columns=column_notes(record),
        curves=occurrence_curves(curves, k, fair_share(record)),
        hubs=hubs,
        never=bars(entries.colours, antihubs["count"], record["items"]["rows"]) if antihubs.get("count") else [],
        examples=examples,
        has_wrong=any(entry.get("wrong") for entry in record.get("hubs") or []),
        pictured=entries.pictured,
        missing=entries.thumbnails.missing,
        vectors=vectors_table(record),
        origin=made_with(record),
        index=index_facts(record),
        next=record.get("next") or [],
        command=record.get("command"),
    )


class ItemEntries:
    """Items of the record as the page shows them; counts thumbnails that cannot be made."""

    def __init__(self, record: dict, pictures: Pictures | None):
        self.colours = ranking_colours([ranking["criterion"] for ranking in record["rankings"]])
        self._pictures = pictures
        shown = [*(record.get("hubs") or []), *((record.get("antihubs") or {}).get("examples") or [])]
        self._scale = max((max(entry["occurrences"]) for entry in shown), default=1)
        self.pictured = any(entry.get("image") for entry in shown)
        self.thumbnails = Thumbnails()

    def card(self, entry: dict) -> dict[str, Any]:
        """Name, label, thumbnail, and the number of queries that find the item under each ranking."""
        name = f"row {entry['item']}" if entry.get("id") is None else str(entry["id"])
        return {
            "name": name,
            "label": entry.get("label"),
            "queries": [_named(query) for query in entry.get("queries") or []],
            "thumbnail": self._thumbnail(entry.get("image"), name) if self.pictured else None,
            "bars": bars(self.colours, entry["occurrences"], self._scale, entry.get("wrong")),
        }

    def _thumbnail(self, image: str | None, name: str) -> str | None:
        picture = image if self._pictures is None or image is None else self._pictures.get(image)
        if picture is None:
            self.thumbnails.absent(name, "no file")
            return None
        return self.thumbnails(picture, name)


def _named(query: dict) -> str:
    """The name of a query: its label, else its id, else its row."""
    name = query.get("label") or query.get("id")
    return f"row {query['query']}" if name is None else str(name)
