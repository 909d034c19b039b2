"""Tables of named columns: .csv, .tsv, .jsonl and .parquet files."""

import csv
import json
import logging
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from vsehub.checks import regular, require
from vsehub.io.arrays import listed, readable
from vsehub.io.text import unescaped

log = logging.getLogger(__name__)

DELIMITED = (".csv", ".tsv")
TABLE_SUFFIXES = (*DELIMITED, ".jsonl", ".parquet")


def read_table(path: Path, choose: Callable[[list[str]], Sequence[str]] = list) -> dict[str, list[Any]]:
    """Columns of a table, as plain values; those of a .csv or .tsv are texts, None stands where a row has no entry.

    A .csv (with commas, semicolons or tabs) or .tsv is UTF-8 and has a header, a .jsonl has an object per line.
    choose: names of all columns -> names of those to read, all by default; the others are logged. Raises InputError if
    the file has another ending, is damaged, lacks a column or has it twice.
    """
    from pyarrow import parquet

    kind = path.suffix.lower()
    require(kind in TABLE_SUFFIXES, f"{path}: expected a table: {', '.join(TABLE_SUFFIXES)}")
    with readable(path, Exception):
        if kind == ".parquet":
            names = parquet.read_schema(path).names
        elif kind == ".jsonl":
            rows = [json.loads(line) for line in path.read_text(encoding="utf-8-sig").split("\n") if line.strip()]
            # keys() also raises an error for a line that holds a list instead of an object.
            names = list(dict.fromkeys(name for row in rows for name in row.keys()))  # noqa: SIM118
        else:
            # Arrow would take what follows an open quote, lines and all, as one entry.
            with path.open(encoding="utf-8-sig", newline="") as file:
                lines = [row for row in csv.reader(file, delimiter=header(path)[0], strict=True) if row]
            names = lines.pop(0) if lines else []
            odd = [f"row {number} has {len(line)}" for number, line in enumerate(lines, 1) if len(line) != len(names)]
            require(
                not odd,
                f"{path}: expected {len(names)} entries in a row, texts with separators in quotes: {listed(odd)}",
            )
            rows = [dict(zip(names, line, strict=True)) for line in lines]
        wanted = list(dict.fromkeys(choose(names)))
        wrong = [name for name in wanted if names.count(name) != 1]
        require(not wrong, f"{path}: expected a column {listed(wrong)}, once; it has {listed(names)}")
        if len(wanted) < len(names):
            log.info("%s: ignored columns: %s", path, listed([name for name in names if name not in wanted]))
        if kind == ".parquet":
            return parquet.read_table(path, columns=wanted).to_pydict()
    return {name: [row.get(name) for row in rows] for name in wanted}


def entry_texts(path: Path, entries: Iterable[Any]) -> list[str]:
    """The entries of a column as texts; None becomes "".

    The escape that vsehub writes before formulas in a .csv or .tsv is removed.
    """
    as_text = unescaped if path.suffix.lower() in DELIMITED else str
    return ["" if entry is None else as_text(entry) for entry in entries]


def header(path: Path) -> tuple[str, list[str]]:
    """The separator of a .csv or .tsv, and the entries of its first line.

    A semicolon or a tab separates the entries of a .csv only if its first line has no comma.
    """
    with regular(path).open(encoding="utf-8-sig", errors="replace", newline="") as file:
        line = next((line for line in file if line.strip()), "")
    usual = "," if path.suffix.lower() == ".csv" else "\t"
    separator = next((mark for mark in (usual, ";", "\t") if mark in line), usual)
    return separator, next(csv.reader([line], delimiter=separator), [])
