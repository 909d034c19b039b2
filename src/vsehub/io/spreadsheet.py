"""Tables for spreadsheet programs: .csv text without formulas, and the inverse of its escapes."""

import csv
import io
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

# Spreadsheets recognise formulas by the first character, each program by other ones. These begin no formula:
# letters, digits and some marks. Quotes before the character count as part of the escape.
_FIRST = r"""\w./(\[{<"#"""
_FORMULA = re.compile(rf"'*[^{_FIRST}']")
_ESCAPED = re.compile(rf"'+[^{_FIRST}']")
_NUMBER = re.compile(r"[-+]?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?( ± [0-9]+(\.[0-9]+)?)?")


def escaped(text: str) -> str:
    """The text, with ' before it if a spreadsheet could take it for a formula; numbers stay as they are.

    >>> [escaped(text) for text in ("=1+1", "two dogs", "'tis", "-0.5", "-x")]
    ["'=1+1", 'two dogs', "'tis", '-0.5', "'-x"]
    """
    return f"'{text}" if _FORMULA.match(text) and not _NUMBER.fullmatch(text) else text


def unescaped(text: str) -> str:
    """The text before `escaped`. Texts that `escaped` never returns lose a ' as well.

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
    # The module quotes a carriage return only as a part of the line's end.
    csv.writer(text, lineterminator="\r\n").writerow(escaped(cell) if isinstance(cell, str) else cell for cell in cells)
    return text.getvalue().removesuffix("\r\n") + "\n"
