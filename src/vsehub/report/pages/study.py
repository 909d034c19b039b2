"""A study as one page that needs no network: sections of sentences, tables and figures; the same tables in markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from vsehub.report.pages.templates import render_page
from vsehub.report.plots import Picture
from vsehub.report.tables import markdown_text


class Grid(NamedTuple):
    """A table of text.

    caption: what its cells are. head: the columns' names. rows: of text, the first cell naming the row. texts: how many
    columns from the left hold words, not figures. shades: for each row and column a share from 0 to 1 by which a cell
    is coloured, None for a cell that is not; None colours nothing.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    shades: Sequence[Sequence[float | None]] | None = None

    def markdown(self) -> str:
        """The table, its caption above."""
        rule = ["---"] * self.texts + ["---:"] * (len(self.head) - self.texts)
        head, *rows = ([markdown_text(cell) for cell in row] for row in (self.head, *self.rows))
        lines = "\n".join(f"| {' | '.join(line)} |" for line in (head, rule, *rows))
        return f"{markdown_text(self.caption)}\n\n{lines}"


class Part(NamedTuple):
    """A section: heading, sentences as a list, tables and figures."""

    heading: str
    sentences: Sequence[str] = ()
    grids: Sequence[Grid] = ()
    pictures: Sequence[Picture] = ()


def study_page(title: str, summary: str, parts: Sequence[Part]) -> str:
    """The whole page; every text is escaped."""
    return render_page("study.html.j2", title=title, summary=summary, parts=parts)


def study_markdown(parts: Sequence[Part]) -> str:
    """The same sections in markdown, without the figures."""
    told = []
    for part in parts:
        told.append(f"## {markdown_text(part.heading)}")
        if part.sentences:
            told.append("\n".join(f"- {markdown_text(text)}" for text in part.sentences))
        told += [grid.markdown() for grid in part.grids]
    return "\n\n".join(told) + "\n"


def shades(values: Sequence[Sequence[float | None]]) -> list[list[float | None]]:
    """Each value's place between the smallest and the largest of all, 0 to 1; None stays None, NaN becomes None."""
    known = [value for row in values for value in row if value is not None and value == value]
    low, high = min(known, default=0.0), max(known, default=0.0)
    width = high - low or 1.0
    return [[None if value is None or value != value else (value - low) / width for value in row] for row in values]
