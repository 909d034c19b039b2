"""Strict reading of text files, paths that stay inside a folder, and .csv text without formulas."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vsehub.checks import require
from vsehub.io.arrays import readable

# Spreadsheets recognise a formula by its first character; which characters count differs between programs. Letters,
# digits and these marks begin a formula in no program. Apostrophes before the character count as part of the escape.
_FIRST = r"""\w./(\[{<"#"""
_FORMULA = re.compile(rf"'*[^{_FIRST}']")
_ESCAPED = re.compile(rf"'+[^{_FIRST}']")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?( ± [0-9]+(\.[0-9]+)?)?")


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a UTF-8 file without their ends, which are `\\n` or `\\r\\n`, nothing else.

    The last newline may be missing, and the file may begin with a byte order mark. what: name of a line ("caption"),
    for messages. Raises InputError for a folder, an empty file, and a line that is blank or not UTF-8.
    """
    with readable(path):
        text = path.read_bytes().decode("utf-8-sig")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    blank = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    require(
        blank is None,
        f"{path}:{blank}: the line is empty; expected a {what} on every line. Write the missing text, or remove the "
        "line and what belongs to it in the other files",
    )
    return lines


def stays_inside(name: str) -> bool:
    """Return True if a path taken from a data file stays inside the folder that it is joined to.

    Absolute paths and paths with `..` do not. A symbolic link inside the folder may point elsewhere, since the owner of
    the folder put it there.
    """
    return not name.startswith("/") and ".." not in name.split("/")


def escaped(text: str) -> str:
    """The text, with ' before it if a spreadsheet could take it for a formula; numbers stay as they are.

    >>> [escaped(text) for text in ("=1+1", "two dogs", "'tis", "-0.5", "-x")]
    ["'=1+1", 'two dogs', "'tis", '-0.5', "'-x"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unescaped(text: str) -> str:
    """The text before `escaped`. A ' before a signed number is removed too, although `escaped` never adds it.

    >>> unescaped("'=1+1"), unescaped("'tis")
    ('=1+1', "'tis")
    """
    return text[1:] if _ESCAPED.match(text) else text


def csv_text(columns: Iterable[str], rows: Iterable[Sequence[Any] | Mapping[str, Any]]) -> str:
    """A table as .csv text with a header. rows: sequences in the order of `columns`, or mappings by their names."""
    names = list(columns)
    table = ([row.get(name) for name in names] if isinstance(row, Mapping) else row for row in rows)
    return _line(names) + "".join(map(_line, table))


def _line(cells: Sequence[Any]) -> str:
    text = io.StringIO(newline="")
    # With this line end the csv module also quotes cells that hold a carriage return.
    csv.writer(text, lineterminator="\r\n").writerow(escaped(cell) if isinstance(cell, str) else cell for cell in cells)
    return text.getvalue().removesuffix("\r\n") + "\n"
