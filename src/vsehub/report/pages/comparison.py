"""Two rankings of one split on the page: the worst hubs before and after, and queries that turned."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from vsehub.report.pages.templates import bars
from vsehub.report.plots import ranking_colours

ITEMS = {"i2t": ("image", "caption"), "t2i": ("caption", "image")}


class Entry(NamedTuple):
    """An image or a caption as the page shows it.

    pictured: whether it is an image that is shown as a picture; thumbnail is its data URL then, None where it could
    not be made. right: that it answers the query in whose list it stands.
    """

    text: str
    pictured: bool = False
    thumbnail: str | None = None
    right: bool = False


class HubEntry(NamedTuple):
    """A hub: among the k nearest of how many queries it is before and after, and of how many that it answers not."""

    name: str
    label: str | None
    thumbnail: str | None
    occurrences: tuple[int, int]
    wrong: tuple[int, int]


class Example(NamedTuple):
    """A query that turned, and its nearest items before and after, nearest first."""

    query: Entry
    before: Sequence[Entry]
    after: Sequence[Entry]


class Side(NamedTuple):
    """One direction, "i2t" or "t2i"; pairs are (before, after).

    largest: among the k nearest of how many queries the most found item is. never: items that no query finds.
    answered: queries, of `measured`, whose first item answers them. gained, lost: how many turned right, and wrong.
    """

    direction: str
    k: int
    queries: int
    items: int
    hubs: Sequence[HubEntry]
    largest: tuple[int, int]
    never: tuple[int, int]
    answered: tuple[int, int]
    measured: int
    gained: int
    lost: int
    some_gained: Sequence[Example]
    some_lost: Sequence[Example]


class Comparison(NamedTuple):
    """Two rankings: what is said in words, their short names, both directions, and how many pictures are missing."""

    sentences: Sequence[str]
    names: tuple[str, str]
    sides: Sequence[Side]
    pictured: bool
    missing: int


def comparison_values(one: Comparison) -> dict[str, Any]:
    """The comparison for the template: figures as bars and sentences."""
    return {
        "heading": f"Hubs and answers: {one.names[0]} → {one.names[1]}",
        "sentences": one.sentences,
        "names": one.names,
        "pictured": one.pictured,
        "missing": one.missing,
        "sides": [_side(side, one.names) for side in one.sides],
    }


def _side(side: Side, names: tuple[str, str]) -> dict[str, Any]:
    colours = ranking_colours(names)
    scale = max((max(hub.occurrences) for hub in side.hubs), default=0) or 1
    query, item = ITEMS[side.direction]
    return {
        "query": query,
        "item": item,
        "k": side.k,
        "sentences": [_hubness(side, names), _answers(side, names)],
        "hubs": [
            {
                "name": hub.name,
                "label": hub.label,
                "queries": [],
                "thumbnail": hub.thumbnail,
                "bars": bars(colours, hub.occurrences, scale, hub.wrong),
            }
            for hub in side.hubs
        ],
        "turned": [
            ("right", _counted(side.gained, query), side.some_gained),
            ("wrong", _counted(side.lost, query), side.some_lost),
        ],
    }


def _hubness(side: Side, names: tuple[str, str]) -> str:
    query, item = ITEMS[side.direction]
    fair = side.queries * min(side.k, side.items) / side.items
    shares = [f"{never:,} ({100 * never / side.items:.1f} %)" for never in side.never]
    return (
        f"The most found {item} is among the {side.k} nearest of {side.largest[0]:,} of {side.queries:,} {query}s "
        f"under {names[0]}, of {side.largest[1]:,} under {names[1]}; a fair share is {fair:.3g}. "
        f"Of {side.items:,} {item}s {shares[0]} are found by no {query} under {names[0]}, {shares[1]} under {names[1]}."
    )


def _answers(side: Side, names: tuple[str, str]) -> str:
    query, item = ITEMS[side.direction]
    shares = [f"{count:,} ({100 * count / max(1, side.measured):.1f} %)" for count in side.answered]
    return (
        f"The first {item} is right for {shares[0]} of {side.measured:,} {query}s under {names[0]}, for {shares[1]} "
        f"under {names[1]}: {side.gained:,} turned right, {side.lost:,} turned wrong."
    )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
