"""The page of `vsehub rerank` and `vsehub diagnose`: hubness before and after the corrections."""

from pathlib import Path
from typing import Any, NamedTuple

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
LEVELS = ("ok", "warn", "fail")
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
        facts.append(("calibration", calibration_text(calibration)))
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


class Metric(NamedTuple):
    """A metric of a ranking: part of the record and key, name, factor and decimals as it is shown, and meaning.

    better: 1 if more is better, -1 if less is, 0 if neither.
    """

    part: str
    key: str
    name: str
    scale: float
    decimals: int
    better: int
    note: str

    def of(self, ranking: dict) -> float | None:
        """The value of a ranking as it is shown, None if it was not measured."""
        value = (ranking.get(self.part) or {}).get(self.key)
        return None if value is None else round(self.scale * value, self.decimals) + 0.0  # no negative zero

    def text(self, value: float | None) -> str:
        """The value as text."""
        return "–" if value is None else f"{value:,.{self.decimals}f}".replace("-", "−")

    def change(self, before: float | None, after: float | None) -> str:
        """The difference of two values; "worse" if it is."""
        if before is None or after is None or before == after:
            return ""
        sign, more = ("+", 1) if after > before else ("−", -1)
        return f"{sign}{self.text(abs(after - before))}{' worse' if more * self.better < 0 else ''}"


def metrics(record: dict) -> dict[str, list[Metric]]:
    """The metrics that some ranking has a value for, under their headings."""
    k, rankings = neighbourhood(record), record["rankings"]
    truth = [Metric("truth", "r1", "R@1", 1, 1, 1, "queries whose nearest item answers them")]
    for depth in (5, 10):
        note = f"queries with an answer among the {depth} nearest items"
        truth.append(Metric("truth", f"r{depth}", f"R@{depth}", 1, 1, 1, note))
    truth += [
        Metric(
            "truth", "map_r", "mAP@R", 1, 1, 1, "mean average precision of the first R items, R being how many answer"
        ),
        Metric("truth", "r_precision", "R-Prec.", 1, 1, 1, "share of a query's first R items that answer it"),
    ]
    hubness = [
        Metric("hubness", f"{key}_{k}", name, scale, decimals, -1, note)
        for key, name, scale, decimals, note in (
            ("largest_hub", "largest hub", 1, 0, "how many lists the most found item is in"),
            (
                "skew",
                f"skewness of N_{k}",
                1,
                2,
                "of how often items are found; 0 if all equally often, high with hubs",
            ),
            ("antihub_rate", "never found %", 100, 1, "items that are in no list"),
            ("robin_hood", "Robin Hood %", 100, 1, "share of all list places that would have to move to be fair"),
            ("gini", "Gini", 1, 3, "inequality of how often items are found: 0 if all are equal, 1 if one has all"),
            ("bad_share", "wrong %", 100, 1, "list places held by an item that does not answer the query"),
        )
    ]
    changed = [
        Metric("changed", "first", "first item", 100, 1, 0, "queries whose first item differs from plain similarity's"),
        Metric("changed", "overlap", "kept", 100, 1, 0, "mean share of the plain list that stays in the list"),
    ]
    parts = {"Against the truth, %": truth, f"Hubness at k = {k}": hubness}
    if len(rankings) > 1:
        parts[f"Against {rankings[0]['criterion']}, %"] = changed
    known = {
        over: [one for one in some if any(one.of(each) is not None for each in rankings)]
        for over, some in parts.items()
    }
    return {over: some for over, some in known.items() if some}


def rankings_table(record: dict) -> ReportTable:
    """The table of the rankings: each value, its difference from the plain ranking's, and whether that is worse."""
    plain, columns = record["rankings"][0], [(over, one) for over, some in metrics(record).items() for one in some]
    rows: list[list[Cell]] = []
    for ranking in record["rankings"]:
        row: list[Cell] = [(ranking["criterion"], parameters(ranking)), str(ranking.get("reference") or "none")]
        for _, metric in columns:
            if metric.part == "changed":
                row.append("–" if ranking is plain else metric.text(metric.of(ranking)))
            else:
                row.append((metric.text(metric.of(ranking)), metric.change(metric.of(plain), metric.of(ranking))))
        rows.append(row)
    head = ["ranking", "reference", *(metric.name for _, metric in columns)]
    return ReportTable(head, rows, words=2, over=["", "", *(over for over, _ in columns)])


def shown_correction(record: dict) -> dict | None:
    """The ranking that the top of the page compares with the plain one: CSLS if measured, else the first correction."""
    found = record["rankings"][1:]
    return next((one for one in found if one["criterion"] == "csls"), found[0] if found else None)


def tiles(record: dict) -> list[tuple[str, str, str | None]]:
    """The values at the top of the page: name, before and after `shown_correction`."""
    plain, corrected = record["rankings"][0], shown_correction(record)
    known = {metric.key: metric for some in metrics(record).values() for metric in some}
    found = []
    for key in (
        f"largest_hub_{neighbourhood(record)}",
        f"antihub_rate_{neighbourhood(record)}",
        f"skew_{neighbourhood(record)}",
        "r1",
    ):
        if (metric := known.get(key)) and metric.of(plain) is not None:
            unit = "\N{NO-BREAK SPACE}%" if metric.name.endswith("%") or metric.part == "truth" else ""
            after = None if corrected is None else metric.text(metric.of(corrected)) + unit
            name = metric.name[0].upper() + metric.name[1:].removesuffix(" %")
            found.append((name, metric.text(metric.of(plain)) + unit, after))
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
        "columns": [(one.name, one.note) for some in metrics(record).values() for one in some],
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
        "vectors": vectors_table(record),
        "origin": made_with(record),
        "index": index_facts(record),
        "next": record.get("next") or [],
        "command": record.get("command"),
    }
    return render_page("embeddings.html.j2", **values)


def _named(entry: dict, row: str) -> str:
    """The id of an item or query, else its row."""
    return f"row {entry.get(row, entry.get('row'))}" if entry.get("id") is None else str(entry["id"])
