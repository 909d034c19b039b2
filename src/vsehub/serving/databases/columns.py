"""Further columns of items, such as prices, from a table: stored beside the vectors, for filters."""

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from vsehub.checks import InputError, require
from vsehub.data.tables import as_ids, read_table
from vsehub.io.arrays import listed
from vsehub.io.text import unescaped

_ID = "id"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,49}")
_RESERVED = ("key", "label", "vector")  # names that vsehub itself stores
_TYPES = ("string", "int64", "double", "bool")


def read_columns(path: str | Path, ids: Sequence[str]) -> "pa.Table":
    """The columns of a .csv, .tsv, .jsonl or .parquet table other than `id`, a row for each of the items' ids (n,).

    Columns hold texts, whole numbers, numbers, or true and false; those of a .csv or .tsv what all their entries can be
    read as. An empty entry is stored as null. Rows of other ids are ignored. Raises InputError if an item has no
    row or several, for names that not every database takes and for entries of other types.
    """
    found = read_table(Path(path))
    require(_ID in found and len(found) > 1, f"item_columns: {path}: expected the column {_ID} and more to store")
    keys = as_ids(Path(path), found.pop(_ID))
    odd = [name for name in found if name in _RESERVED or not _NAME.fullmatch(name)]
    require(
        not odd,
        f"item_columns: {path} has a column {listed(odd)}; expected at most 50 letters, digits and underscores, a "
        f"letter first, and none of {', '.join(_RESERVED)}",
    )
    counts, rows = Counter(keys), {one: row for row, one in enumerate(keys)}
    wrong = [one for one in ids if counts[one] != 1]
    require(not wrong, f"item_columns: {path}: expected one row for each item, not for {listed(wrong)} of {len(ids)}")
    typed = Path(path).suffix.lower() in (".jsonl", ".parquet")
    for name, entries in found.items():
        cells = [entries[rows[one]] for one in ids]
        try:
            column = pa.array(cells) if typed else _from_texts([unescaped(cell) or None for cell in cells])
        except (pa.ArrowException, OverflowError, UnicodeEncodeError) as error:
            raise InputError(f"item_columns: {path}: {name}: {error}") from error
        found[name] = column = column.cast(pa.string()) if pa.types.is_null(column.type) else column
        sound = str(column.type) in _TYPES and (column.type != pa.float64() or np.isfinite(column.drop_null()).all())
        require(
            bool(sound),
            f"item_columns: {path}: {name} holds {column.type}; expected {', '.join(_TYPES)}, finite",
        )
    return pa.table(found)


def _from_texts(entries: list[str | None]) -> "pa.Array[Any]":
    """Texts as booleans, whole numbers, numbers or texts, the first that all can be read as."""
    column = pa.array(entries, pa.string())
    numbers = (pa.int64(), pa.float64(), pa.bool_())  # Arrow would read 0 and 1 as truth
    for kind in numbers if any(entries) else ():
        try:
            return column.cast(kind)
        except pa.ArrowException:
            continue
    return column
