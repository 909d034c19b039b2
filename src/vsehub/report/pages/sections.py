"""Pages made of sections: plots, notes, tables and metadata under a heading; the same sections in Markdown."""

from collections.abc import Sequence
from typing import NamedTuple

from vsehub.report.plots import Picture
from vsehub.report.tables import ReportTable, markdown_text


class Section(NamedTuple):
    """A section of a page.

    Attributes:
        heading: its title.
        notes: short statements that are needed to read the values correctly, shown as a list.
        tables: the tables, each with its caption.
        facts: the origin of the values, (name, text).
        pictures: the plots.
        lead: plots that come first, before the notes.
    """

    heading: str
    notes: Sequence[str] = ()
    tables: Sequence[ReportTable] = ()
    facts: Sequence[tuple[str, str]] = ()
    pictures: Sequence[Picture] = ()
    lead: Sequence[Picture] = ()

    def markdown(self) -> str:
        """The section without its plots."""
        facts = bullets([f"{name}: {text}" for name, text in self.facts])
        parts = [f"## {markdown_text(self.heading)}", bullets(self.notes), *(table.markdown() for table in self.tables)]
        return "\n\n".join(filter(None, [*parts, facts]))


def bullets(texts: Sequence[str]) -> str:
    """A list in Markdown."""
    return "\n".join(f"- {markdown_text(text)}" for text in texts)
