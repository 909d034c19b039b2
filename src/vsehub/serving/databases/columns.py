"""Further columns of items, such as prices, from a table: stored beside the vectors, for filters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsehub.checks import InputError, require
from vsehub.data.item_rows import ID, rows_of
from vsehub.data.tables import TableFile
from vsehub.io.spreadsheet import unescaped

if TYPE_CHECKING:
    import pyarrow as pa

_EXPECTED = "a table with the column id and a further column for each thing to store"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,49}")
_RESERVED = ("key", "label", "vector")  # names that vsehub itself stores
_TYPES = ("string", "int64", "double", "bool")
_TRUTH = {"true": True, "false": False}


def read_columns(path: str | Path, ids: Sequence[str]) -> "pa.Table":
    """The columns of a .csv, .tsv, .jsonl or .parquet table other than `id`, a row for each of the items' ids (n,).

    Columns hold texts, whole numbers, numbers, or true and false; those of a .csv or .tsv what all their entries can be
    read as. An empty entry is stored as null. Rows of other ids are ignored. Raises InputError if an item has no
    row or several, for names that not every database takes and for entries of other types.
    """
    import pyarrow as pa

    table = TableFile(Path(path), _EXPECTED)
    table.require_columns([ID], "The column id holds the items' ids")
    names = [name for name in table.names() if name != ID]
    require(len(names) > 0, f"item_columns: {path} has only the column id; expected {_EXPECTED}")
    for name in names:
        require(
            _NAME.fullmatch(name) is not None and name not in _RESERVED and names.count(name) == 1,
            f"item_columns: {path} has a column {name!r}; expected at most 50 letters, digits and underscores, a "
            f"letter first, each name once, and none of {', '.join(_RESERVED)}",
        )
    entries = table.entries([ID, *names])
    rows = rows_of("item_columns", table, entries[ID], ids)
    typed = table.kind in (".jsonl", ".parquet")
    columns = {}
    for name in names:
        cells = [entries[name][row] for row in rows]
        try:
            column = pa.array(cells) if typed else _from_texts([unescaped(cell) for cell in cells])
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise InputError(f"item_columns: {path}: {name}: {error}") from error
        column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        kind = str(column.type)
        require(kind in _TYPES, f"item_columns: {path}: {name} holds {kind}; expected one of {', '.join(_TYPES)}")
        finite = kind != "double" or bool(np.isfinite(column.drop_null().to_numpy()).all())
        require(finite, f"item_columns: {path}: {name} holds NaN or infinite numbers; leave such entries empty")
        columns[name] = column
    return pa.table(columns)


def _from_texts(texts: list[str]) -> "pa.Array[Any]":
    """Texts as booleans, whole numbers, numbers or texts, the first that all can be read as; empty ones as null."""
    import pyarrow as pa

    entries = [text or None for text in texts]
    if any(entries) and all(entry is None or entry.lower() in _TRUTH for entry in entries):
        return pa.array([None if entry is None else _TRUTH[entry.lower()] for entry in entries])
    column = pa.array(entries, pa.string())
    for kind in (pa.int64(), pa.float64()):
        try:
            return column.cast(kind) if any(entries) else column
        except pa.ArrowException:
            continue
    return column
