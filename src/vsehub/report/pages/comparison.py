"""The comparison of two rankings on a page: the worst hubs before and after, and queries gained and lost."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from vsehub.report.pages.templates import bars
from vsehub.report.plots import ranking_colours
from vsehub.report.tables import ReportTable, count_text

if TYPE_CHECKING:
    from vsehub.evaluation.compare import Compared, Listed, Turned

ITEMS = {"i2t": ("image", "caption"), "t2i": ("caption", "image")}


class PageEntry(NamedTuple):
    """An image or a caption as the page shows it.

    Attributes:
        text: an image's name, or a caption.
        label: text below the name of a hub.
        thumbnail: a data URL; None if there is no picture, or if it could not be made.
        pictured: whether lists show it as a picture.
    """

    text: str
    label: str | None = None
    thumbnail: str | None = None
    pictured: bool = False


class Direction(NamedTuple):
    """One direction of a comparison.

    Attributes:
        name: "i2t" or "t2i".
        found: what was measured.
        queries: the queries that are shown, by row.
        items: the items that are shown, by row.
    """

    name: str
    found: "Compared"
    queries: Mapping[int, PageEntry]
    items: Mapping[int, PageEntry]


class RankingComparison(NamedTuple):
    """Two rankings of the same queries and items.

    Attributes:
        facts: what was ranked and how, (name, text).
        names: the rankings' short names.
        directions: what was found.
        pictured: whether images are shown as pictures.
        missing: the number of pictures that could not be shown.
    """

    facts: Sequence[tuple[str, str]]
    names: tuple[str, str]
    directions: Sequence[Direction]
    pictured: bool
    missing: int


def comparison_values(one: RankingComparison) -> dict[str, Any]:
    """The comparison for the template: tables, bars and lists."""
    return {
        "heading": f"Hubs and answers: {one.names[0]} → {one.names[1]}",
        "facts": one.facts,
        "names": one.names,
        "pictured": one.pictured,
        "missing": one.missing,
        "directions": [_direction(direction, one.names) for direction in one.directions],
    }


def _direction(direction: Direction, names: tuple[str, str]) -> dict[str, Any]:
    found, colours = direction.found, ranking_colours(names)
    scale = max((max(hub.occurrences) for hub in found.hubs), default=0) or 1
    query, item = ITEMS[direction.name]
    return {
        "query": query,
        "item": item,
        "k": found.k,
        "table": _table(direction, names),
        "hubs": [
            {
                "name": direction.items[hub.item].text,
                "label": direction.items[hub.item].label,
                "queries": [],
                "thumbnail": direction.items[hub.item].thumbnail,
                "bars": bars(colours, hub.occurrences, scale, hub.wrong),
            }
            for hub in found.hubs
        ],
        "turned": [
            ("right", count_text(found.gained, query), _examples(direction, found.some_gained)),
            ("wrong", count_text(found.lost, query), _examples(direction, found.some_lost)),
        ],
    }


def _examples(direction: Direction, some: Sequence["Turned"]) -> list[dict[str, Any]]:
    def listed(items: Sequence["Listed"]) -> list[tuple[PageEntry, bool]]:
        return [(direction.items[one.item], one.right) for one in items]

    return [
        {"query": direction.queries[one.query], "before": listed(one.before), "after": listed(one.after)}
        for one in some
    ]


def _table(direction: Direction, names: tuple[str, str]) -> ReportTable:
    """The two rankings by their results for all queries and items."""
    found, (query, item) = direction.found, ITEMS[direction.name]
    fair = found.queries * min(found.k, found.items) / found.items

    def shares(counts: tuple[int, int], total: int) -> list[str]:
        return [f"{count:,} ({100 * count / max(1, total):.1f} %)" for count in counts]

    rows = [
        [f"{query}s that have the largest hub among their {found.k} nearest", *(f"{one:,}" for one in found.largest)],
        [f"{item}s that no {query} finds, of {found.items:,}", *shares(found.never, found.items)],
        [f"{query}s whose first {item} is right, of {found.measured:,}", *shares(found.answered, found.measured)],
        [f"{query}s that became right", "", f"{found.gained:,}"],
        [f"{query}s that became wrong", "", f"{found.lost:,}"],
    ]
    caption = (
        f"{count_text(found.queries, query)}, {count_text(found.items, item)}; a fair share is {fair:.3g} {query}s."
    )
    return ReportTable(["", *names], rows, caption, wrap=True)
