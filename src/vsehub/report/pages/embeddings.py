"""The page of `vsehub rerank` and `vsehub diagnose`: what hubs there are, and what the corrections make of them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.io.files import write_text
from vsehub.io.records import EMBEDDINGS, checked_record
from vsehub.report.pages.runs import code_text, hardware_text, versions_text
from vsehub.report.pages.templates import Thumbnails, bars, render_page
from vsehub.report.plots import occurrence_curves, ranking_colours, share_text
from vsehub.report.tables import duration

REFERENCES = {
    "transductive": "the corrections saw the very queries that they rank. For queries that come one at a time, give "
    "reference queries of their own",
    "inductive": "the corrections saw none of the queries that they rank",
    "none": "no ranking here looks at other queries",
}


def neighbourhood(record: dict) -> int:
    """The largest k at which occurrences were counted: 10 as a rule, less with fewer items."""
    return max(int(k) for k in record["rankings"][0]["histograms"])


def fair_share(record: dict) -> float:
    """How many queries would find each item if all were found equally often."""
    return neighbourhood(record) * record["queries"]["rows"] / record["items"]["rows"]


def parameters(ranking: dict) -> str:
    """A criterion's parameters as a reader sees them; nothing where they are a structure of their own."""
    given = (ranking.get("parameters") or {}).items()
    return ", ".join(f"{name} {value}" for name, value in given if not isinstance(value, dict | list))


def spoken(name: str) -> str:
    """A criterion's name within a sentence: short names are acronyms, so that "is" is told from the verb."""
    parts = name.split("+")
    return "+".join(part.upper() if len(part) <= 4 else part.replace("_", " ") for part in parts)


def reference_sentence(record: dict) -> str:
    """Whose scores the corrections saw; always said."""
    reference = record.get("reference") or {}
    kind = reference.get("kind") or "none"
    if kind == "none":
        return f"Reference: none; {REFERENCES['none']}."
    rows = f" ({reference['rows']:,} rows)" if reference.get("rows") else ""
    shared = reference.get("queries_in_it")
    known = f" {shared:,} of the queries stand in it all the same." if shared else ""
    return f"Reference: {kind}, {reference.get('set') or 'not recorded'}{rows}: {REFERENCES[kind]}.{known}"


def truth_sentence(record: dict) -> str | None:
    """By what the recalls were measured; None without truth."""
    truth = record.get("truth")
    if not truth:
        return None
    without = truth.get("queries_without") or 0
    left_out = f"; {without:,} queries without a pair are left out of the figures" if without else ""
    return (
        f"Truth: {truth['pairs']:,} pairs in {truth.get('path') or 'memory'} for {truth['measured_queries']:,} "
        f"queries{left_out}."
    )


def page_title(record: dict) -> str:
    """Whose hubness it is, by the names of the files."""
    names = [Path(str(record[side].get("path") or side)).name for side in ("queries", "items")]
    return f"Hubness of {names[1]} searched with {names[0]}"


STEPS = {"look_through": "looking through the files", "reference": "reference", "search": "search", "total": "in all"}


def sides(record: dict) -> list[dict[str, str]]:
    """A line for each file of vectors: queries, items, and reference queries of their own."""
    lines = []
    for name in ("queries", "items", "reference"):
        facts = record.get(name) or {}
        if facts.get("path") or (name != "reference" and facts):
            lines.append(
                {
                    "vectors": name,
                    "file": str(facts.get("path") or "in memory"),
                    "shape": " × ".join(f"{facts[key]:,}" for key in ("rows", "dim") if facts.get(key)),
                    "type": str(facts.get("dtype") or "–"),
                    "norms": _norms(facts.get("norms")),
                    "fingerprint": str(facts.get("fingerprint") or "–"),
                }
            )
    return lines


def _norms(norms: dict | None) -> str:
    if not norms:
        return "–"
    spread = "{:.4g}".format(norms["least"])
    if norms["most"] != norms["least"]:
        spread += f" to {norms['most']:.4g}"
    return f"{spread}, {100 * norms['unit_share']:.4g} % are 1" if norms.get("unit_share") is not None else spread


def made_with(record: dict) -> list[tuple[str, str]]:
    """When, where and with what the record was made: (name, text)."""
    seconds = record.get("seconds") or {}
    spent = [f"{STEPS.get(name, name)} {_time(value)}" for name, value in seconds.items() if value is not None]
    told = [
        ("started", record.get("started")),
        ("time", ", ".join(spent)),
        ("hardware", hardware_text(record.get("hardware") or {})),
        ("code", code_text(record)),
        ("versions", versions_text(record.get("versions"))),
    ]
    return [(name, str(text)) for name, text in told if text]


def _time(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 10 else duration(seconds)


def index_facts(record: dict) -> list[tuple[str, str]]:
    """What is known of the search index that was built: (name, text); nothing where none was."""
    return [(name, _fact(name, value)) for name, value in (record.get("index") or {}).items() if value is not None]


def _fact(name: str, value: object) -> str:
    if name == "bytes" and isinstance(value, int):
        return f"{value / 1e6:,.1f} MB"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_fact(key, part)}" for key, part in value.items())
    return f"{value:,.4g}" if isinstance(value, float) else str(value)


class Figure(NamedTuple):
    """A column: the part of a ranking that holds it, its key there, heading, factor, decimals, and what it says."""

    part: str
    key: str
    heading: str
    scale: float
    decimals: int
    note: str


TRUTH = (
    *(Figure("truth", f"r{k}", f"R@{k}", 1, 1, f"queries with an answer among the {k} nearest") for k in (1, 5, 10)),
    Figure(
        "truth", "map_r", "mAP@R", 1, 1, "mean average precision of a query's first R items, R being how many answer it"
    ),
    Figure("truth", "r_precision", "R-Prec.", 1, 1, "share of a query's first R items that answer it"),
)
CHANGED = (
    Figure("changed", "first", "first item", 100, 1, "queries whose first item is another than under plain similarity"),
    Figure("changed", "overlap", "kept", 100, 1, "mean share of the plain list that stays in the list, in any order"),
)


def hubness_columns(k: int) -> tuple[Figure, ...]:
    """The columns of hubness at k; shares in %."""
    return tuple(
        Figure("hubness", f"{key}_{k}", *rest)
        for key, *rest in (
            ("skew", "skew", 1, 2, "skewness of how often items are found; 0 where none is favoured, high with hubs"),
            ("robin_hood", "Robin Hood %", 100, 1, "share of all list places that would have to move to be fair"),
            ("gini", "Gini", 1, 3, "inequality of how often items are found: 0 all alike, 1 one has all"),
            ("antihub_rate", "never found %", 100, 1, "items that are in no list"),
            ("largest_hub", "largest hub", 1, 0, "how many lists the most found item is in"),
            ("bad_share", "wrong %", 100, 1, "list places held by an item that does not answer the query"),
        )
    )


def rankings_table(record: dict) -> dict:
    """The rankings as a grid for the template: a figure, and beside it how far it is from the plain ranking's."""
    rankings = record["rankings"]
    parts = _parts(record)
    columns = [column for _, some in parts for column in some]
    rows = []
    for number, ranking in enumerate(rankings):
        own = [(ranking["criterion"], parameters(ranking)), (str(ranking.get("reference") or "none"), "")]
        rows.append(own + [_cell(column, ranking, rankings[0] if number else None) for column in columns])
    return {
        "groups": [["", 2], *([over, len(some)] for over, some in parts)],
        "names": ["ranking", "reference", *(column.heading for column in columns)],
        "numeric": [False, False, *(True for _ in columns)],
        "rows": rows,
        "starts": [False] * len(rows),
    }


def column_notes(record: dict) -> list[tuple[str, str]]:
    """What each column of the table says: (heading, words)."""
    return [(column.heading, column.note) for _, columns in _parts(record) for column in columns]


def _parts(record: dict) -> list[tuple[str, list[Figure]]]:
    """The columns that some ranking has a figure for, under their headings."""
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


def _value(ranking: dict, column: Figure) -> float | None:
    value = (ranking.get(column.part) or {}).get(column.key)
    return None if value is None else column.scale * value


def _cell(column: Figure, ranking: dict, plain: dict | None) -> tuple[str, str]:
    value = _value(ranking, column)
    if value is None or (column.part == "changed" and plain is None):
        return "–", ""
    text = f"{value:,.{column.decimals}f}".replace("-", "−")
    before = None if plain is None or column.part == "changed" else _value(plain, column)
    return text, "" if before is None else _difference(value - before, column.decimals)


def _difference(difference: float, decimals: int) -> str:
    text = f"{abs(difference):,.{decimals}f}"
    sign = "" if not text.strip("0.,") else "+" if difference > 0 else "−"
    return f"{sign}{text}"


PERCENT = "\N{NO-BREAK SPACE}%"


class Measure(NamedTuple):
    """A figure by which a ranking is judged: where the record holds it, and how it is shown."""

    name: str
    part: str
    key: str
    scale: float = 1
    decimals: int = 0
    unit: str = ""
    more_is_better: bool = False

    def text(self, value: float) -> str:
        """The value as a reader sees it."""
        return f"{self._shown(value):,.{self.decimals}f}{self.unit}".replace("-", "−")

    def verdict(self, before: float, after: float) -> str:
        """Whether `after` is "better" or "worse" than `before`; "unchanged" where the two are shown alike."""
        gain = self._shown(after) - self._shown(before)
        if not gain:
            return "unchanged"
        return "better" if (gain > 0) == self.more_is_better else "worse"

    def of(self, ranking: dict) -> float | None:
        """The figure of a ranking, None where it was not measured."""
        return (ranking.get(self.part) or {}).get(self.key)

    def _shown(self, value: float) -> float:
        return round(self.scale * value, self.decimals) + 0.0  # no negative zero


class Change(NamedTuple):
    """A measure under plain similarity and after a correction, as a reader sees them, with the verdict."""

    name: str
    before: str
    after: str
    verdict: str


class Tile(NamedTuple):
    """A figure in large type: what it is, before, and after the correction that is named, or None."""

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


def changes(record: dict, number: int) -> list[Change]:
    """What the correction `number` (1 is the first) makes of each measure that plain similarity and it have."""
    plain, ranking = record["rankings"][0], record["rankings"][number]
    found = []
    for measure in judged(record):
        before, after = measure.of(plain), measure.of(ranking)
        if before is not None and after is not None:
            verdict = measure.verdict(before, after)
            found.append(Change(measure.name, measure.text(before), measure.text(after), verdict))
    return found


def gentlest(record: dict) -> int | None:
    """The correction with the smallest largest hub, better than plain similarity or not; None without corrections."""
    key = f"largest_hub_{neighbourhood(record)}"
    return min(range(1, len(record["rankings"])), key=lambda n: record["rankings"][n]["hubness"][key], default=None)


def findings(record: dict) -> str:
    """What was found, for a reader of nothing else."""
    k, best = neighbourhood(record), gentlest(record)
    rankings, queries = record["rankings"], record["queries"]["rows"]
    largest, place = judged(record)[0], "the nearest item" if k == 1 else f"among the {k} nearest items"
    told = [
        f"The largest hub is {place} of {largest.text(largest.of(rankings[0]))} of {queries:,} queries; a fair share "
        f"is {share_text(fair_share(record))}."
    ]
    if best is None:
        return " ".join([*told, _unseen(record, None)])
    figures = (f"{one.name} from {one.before} to {one.after} ({one.verdict})" for one in changes(record, best))
    told.append(f"With {spoken(rankings[best]['criterion'])}: {', '.join(figures)}.")
    return " ".join([*told, *_unimproved(record), _unseen(record, best), *_highest_recall(rankings, best)])


def worsened(record: dict) -> str:
    """The corrections under which some measure is worse than under plain similarity, each with what it became."""
    told = []
    for number, ranking in enumerate(record["rankings"][1:], 1):
        worse = [f"{one.name} {one.before} → {one.after}" for one in changes(record, number) if one.verdict == "worse"]
        if worse:
            told.append(f"{spoken(ranking['criterion'])} ({', '.join(worse)})")
    return "; ".join(told)


def tiles(record: dict) -> list[Tile]:
    """The figures to see first, before and after the correction with the smallest largest hub."""
    k, best = neighbourhood(record), gentlest(record)
    largest, skew, recall = judged(record)
    never = Measure("items never found", "hubness", f"antihub_rate_{k}", 100, 1, PERCENT)
    found = []
    for measure in (largest, never, skew, recall):
        before = measure.of(record["rankings"][0])
        after = None if best is None else measure.of(record["rankings"][best])
        if before is not None:
            shown = None if best is None else "–" if after is None else measure.text(after)
            found.append(Tile(measure.name[0].upper() + measure.name[1:], measure.text(before), shown))
    return found


def _unimproved(record: dict) -> list[str]:
    """The measures that not one of several corrections improves."""
    every = [changes(record, number) for number in range(1, len(record["rankings"]))]
    better = {one.name for found in every for one in found if one.verdict == "better"}
    names = [one.name for one in every[0] if one.name not in better]
    if len(every) == 1 or not names:
        return []
    return [f"No better under any of the {len(every)} corrections: {', '.join(names)}."]


def _unseen(record: dict, best: int | None) -> str:
    """How many items no query finds, before and, where it is another number, after."""
    items, before = record["items"]["rows"], _never(record, 0)
    after = before if best is None else _never(record, best)
    if before == after == 0:
        return "Every item is found by some query."
    told = f"{before:,} of {items:,} items ({100 * before / items:.1f} %) are found by no query"
    return f"{told}." if before == after else f"{told}; with {spoken(record['rankings'][best]['criterion'])} {after:,}."


def _never(record: dict, ranking: int) -> int:
    rate = record["rankings"][ranking]["hubness"][f"antihub_rate_{neighbourhood(record)}"]
    return round(rate * record["items"]["rows"])


def _highest_recall(rankings: list[dict], best: int) -> list[str]:
    """Whose R@1 is the highest, where it is not that of the correction that is shown; nothing without truth."""
    found = [(ranking.get("truth") or {}).get("r1") for ranking in rankings]
    if found[0] is None or found[best] is None:
        return []
    highest = max(range(len(found)), key=lambda n: -1.0 if found[n] is None else found[n])
    if found[highest] <= found[best]:
        return []
    name = spoken(rankings[highest]["criterion"]) if highest else "plain similarity"
    return [f"The highest R@1 is that of {name}, {found[highest]:.1f} %."]


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
    k = neighbourhood(record)
    rankings = record["rankings"]
    curves = {ranking["criterion"]: ranking["histograms"][str(k)] for ranking in rankings}
    entries = Entries(record, pictures)
    hubs = [entries.card(entry) for entry in record.get("hubs") or []]
    antihubs = record.get("antihubs") or {}
    examples = [entries.card(entry) for entry in antihubs.get("examples") or []]
    entries.thumbnails.warn()
    return render_page(
        "embeddings.html.j2",
        title=page_title(record),
        summary=findings(record),
        k=k,
        fair=share_text(fair_share(record)),
        best=None if (best := gentlest(record)) is None else spoken(rankings[best]["criterion"]),
        tiles=tiles(record),
        worse=worsened(record),
        sentences=[text for text in (reference_sentence(record), truth_sentence(record)) if text],
        rankings=rankings_table(record),
        columns=column_notes(record),
        curves=occurrence_curves(curves, k, fair_share(record)),
        hubs=hubs,
        never=bars(entries.colours, antihubs["count"], record["items"]["rows"]) if antihubs.get("count") else [],
        examples=examples,
        has_wrong=any(entry.get("wrong") for entry in record.get("hubs") or []),
        pictured=entries.pictured,
        missing=entries.thumbnails.missing,
        sides=sides(record),
        origin=made_with(record),
        index=index_facts(record),
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
