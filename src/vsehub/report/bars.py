"""Counts as bars of a page, one a ranking."""

from collections.abc import Mapping, Sequence


def bars(
    colours: Mapping[str, str], counts: Sequence[int], scale: int, wrong: Sequence[int] | None = None
) -> list[dict[str, str | None]]:
    """A bar a ranking: its name, colour and count, and the widths in % of the count and of its wrong part.

    colours: ranking -> colour. counts, wrong: one a ranking. scale: the count of a whole bar.
    """
    return [
        {
            "name": name,
            "colour": colour,
            "text": f"{count:,}",
            "width": f"{100 * count / scale:.2f}",
            "wrong": None if false is None else f"{100 * false / scale:.2f}",
        }
        for (name, colour), count, false in zip(
            colours.items(), counts, [None] * len(counts) if wrong is None else wrong, strict=True
        )
    ]
