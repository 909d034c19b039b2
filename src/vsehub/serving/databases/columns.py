"""Further columns of items, such as prices, from a table: stored beside the vectors, for filters."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vsehub.checks import InputError, existing, require
from vsehub.data.tables import as_ids, read_table
from vsehub.data.truth import distinct_ids
from vsehub.io.arrays import listed
from vsehub.io.text import unescaped

_NAME = re.compile(r"(?!(id|key|label|vector)$)[A-Za-z][A-Za-z0-9_]{0,49}")  # not what vsehub itself stores
_TYPES = ("string", "int64", "double", "bool")


def read_columns(path: str | Path, ids: Sequence[str]) -> pa.Table:
    """The columns of a .csv, .tsv, .jsonl or .parquet table other than `id`, a row for each of the items' ids (n,).

    Columns hold texts, whole numbers, numbers, or true and false; those of a .csv or .tsv what all their entries can be
    read as. An empty entry is stored as null. Rows of other ids are ignored. Raises InputError if an item has no
    row, if an id repeats, for names that not every database takes and for entries of other types.
    """
    path = existing("item_columns", path, "Give a table with the column id and those to store")
    found = read_table(path)
    require("id" in found and len(found) > 1, f"item_columns: {path}: expected the column id and more to store")
    keys = as_ids(path, found.pop("id"))
    distinct_ids(f"item_columns: {path}", keys)
    odd = [name for name in found if not _NAME.fullmatch(name)]
    require(
        not odd,
        f"item_columns: {path} has a column {listed(odd)}; expected at most 50 letters, digits and underscores, a "
        "letter first, and none of key, label and vector",
    )
    rows = {one: row for row, one in enumerate(keys)}
    missing = [one for one in ids if one not in rows]
    require(not missing, f"item_columns: {path}: no row for {listed(missing)}")
    read = pa.array if path.suffix.lower() in (".jsonl", ".parquet") else _from_texts
    for name, entries in found.items():
        try:
            column = read([entries[rows[one]] for one in ids])
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise InputError(f"item_columns: {path}: {name}: {error}") from error
        found[name] = column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        sound = str(column.type) in _TYPES and (column.type != pa.float64() or np.isfinite(column.drop_null()).all())
        require(bool(sound), f"item_columns: {path}: {name} holds {column.type}; expected {', '.join(_TYPES)}, finite")
    return pa.table(found)


def _from_texts(cells: list[str]) -> "pa.Array[Any]":
    """Texts as whole numbers, numbers, booleans or texts, the first that all can be read as."""
    column = pa.array([unescaped(cell) or None for cell in cells], pa.string())
    for kind in (pa.int64(), pa.float64(), pa.bool_()):  # Arrow would read 0 and 1 as truth
        try:
            return column if column.null_count == len(column) else column.cast(kind)
        except pa.ArrowException:
            continue
    return column
