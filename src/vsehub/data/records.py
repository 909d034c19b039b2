"""Rows of text tables, .csv, .tsv and .jsonl, each with its line; damage is named by its line."""

import csv
import io
import json
from collections.abc import Generator, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

from vsehub.checks import InputError, fail, regular
from vsehub.io.progress import byte_bar
from vsehub.io.text import long_fields

DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHERS = ";\t"  # used in a .csv by programs with a decimal comma
_MOST_CELLS = 1 << 11  # rows read at a time: with more, Python's garbage collection takes longer than reading
_QUOTES = 'Put entries with separators, line breaks or quotes in quotes, and write a quote within as ""'


def delimiter_of(path: Path) -> str:
    """What separates the entries of a .csv or .tsv.

    A semicolon or a tab separates the entries of a .csv only if its header has no comma.
    """
    usual = DELIMITERS[path.suffix.lower()]
    with regular(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        header = next((line for line in file if line.strip()), "")
    return next((one for one in _OTHERS if usual not in header and one in header), usual)


def csv_rows(path: Path, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(last line, entries) of each row of a .csv or .tsv, the header first; empty lines are passed over.

    Read by the csv module, strictly: Arrow takes what follows an open quote, lines and all, as one entry. Raises
    InputError naming the line if the file is not UTF-8, if a quote is open, or if rows differ in length.
    """
    return chain.from_iterable(_csv_blocks(path, delimiter))


def _csv_blocks(path: Path, delimiter: str) -> Iterator[list[tuple[int, list[str]]]]:
    with regular(path).open("rb") as raw, byte_bar(f"reading {path.name}", path.stat().st_size) as bar:
        reader = csv.reader(io.TextIOWrapper(raw, encoding="utf-8-sig", newline=""), delimiter=delimiter, strict=True)
        filled, width, count = filter(None, reader), 0, 1
        while True:
            try:
                with long_fields():  # not during the yield: the caller may never ask for the next row
                    rows = [(reader.line_num, entries) for entries in islice(filled, count)]
            except csv.Error as error:
                raise InputError(f"{path}:{reader.line_num}: {error}. {_QUOTES}") from error
            except UnicodeDecodeError as error:
                raise InputError(f"{path}{undecodable_line(path)}") from error
            if not rows:
                return
            width = width or len(rows[0][1])
            for line, entries in rows:
                if len(entries) != width:
                    counts = f"{len(entries)} entries; expected {width}, as the first line has"
                    fail(f"{path}:{line}: {counts}. {_QUOTES}")
            yield rows
            bar.update(raw.tell() - bar.n)
            count = min(8 * count, max(1, _MOST_CELLS // width))


def undecodable_line(path: Path) -> str:
    """The number of the first line that is not UTF-8 and its first bad byte, for a message; "" if there is none."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode()
            except UnicodeDecodeError as bad:
                return f":{number}: byte 0x{line[bad.start]:02x} is not UTF-8. Save the file as UTF-8"
    return ""


def filled_lines(path: Path) -> Generator[int, None, None]:
    """The line of each row of a text table, the header's first; slow: for messages only."""
    with long_fields(), path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
        if path.suffix.lower() not in DELIMITERS:
            yield from (number for number, line in enumerate(file, 1) if line.strip())
            return
        reader = csv.reader(file, delimiter=delimiter_of(path))
        yield from (reader.line_num for entries in reader if entries)


def json_rows(path: Path, expected: str) -> Iterator[tuple[int, Any]]:
    """(line, value) of each line of a .jsonl that is not empty.

    expected: what a line should be, the end of a message. Raises InputError naming the line if one is no JSON.
    """
    with regular(path).open("rb") as file, byte_bar(f"reading {path.name}", path.stat().st_size) as bar:
        for number, line in enumerate(file, 1):
            bar.update(len(line))
            text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
            if not text.strip():
                continue
            try:
                row = json.loads(text)
            except (ValueError, RecursionError) as error:
                raise InputError(f"{path}:{number}: no JSON ({error}); {expected}") from error
            yield number, row
