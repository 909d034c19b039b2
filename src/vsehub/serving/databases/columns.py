"""Further columns of items, such as prices, from a table: stored beside the vectors, for filters."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vsehub.checks import InputError, require
from vsehub.data.tables import as_ids, read_table
from vsehub.io.rows import listed
from vsehub.io.spreadsheet import unescaped

if TYPE_CHECKING:
    import pyarrow as pa

_ID = "id"
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

    found = read_table(Path(path))
    require(_ID in found and len(found) > 1, f"item_columns: {path}: expected the column {_ID} and more to store")
    keys = as_ids(Path(path), found.pop(_ID))
    for name in found:
        require(
            _NAME.fullmatch(name) is not None and name not in _RESERVED,
            f"item_columns: {path} has a column {name!r}; expected at most 50 letters, digits and underscores, a "
            f"letter first, and none of {', '.join(_RESERVED)}",
        )
    counts, rows = Counter(keys), {one: row for row, one in enumerate(keys)}
    wrong = [one for one in ids if counts[one] != 1]
    require(not wrong, f"item_columns: {path}: expected one row for each item, not for {listed(wrong)} of {len(ids)}")
    columns, typed = {}, Path(path).suffix.lower() in (".jsonl", ".parquet")
    for name, entries in found.items():
        cells = [entries[rows[one]] for one in ids]
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
