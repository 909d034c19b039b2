"""Parts of a markdown page that commands write: between two marks, so that the words around them stay."""

from pathlib import Path

from vsehub.files import write_text

START, END = "<!-- generated -->", "<!-- end of the generated part -->"


def renew(page: Path, text: str) -> None:
    """Put `text` between the marks of a page."""
    before, _, rest = page.read_text().partition(START)
    write_text(page, f"{before}{START}\n\n{text}\n{END}{rest.partition(END)[2]}")
