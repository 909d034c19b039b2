"""The table of rankings: what each finds, how hubs fare under it, how much it changes."""

from typing import NamedTuple

from vsehub.report.embedding_facts import neighbourhood, parameters


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
