"""Tables with a row for each item: found by the items' ids, or in the order of the items."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail, require
from vsehub.data.tables import TableFile
from vsehub.io.spreadsheet import unescaped

ID = "id"


def rows_of(setting: str, table: TableFile, keys: Sequence[Any], ids: Sequence[str]) -> list[int]:
    """The row of each of the items' ids (n,) in a table whose column `id` is `keys`; rows of other ids are ignored.

    setting: what gave the table, for messages. Raises InputError if an item has no row or several.
    """
    typed = table.kind in (".jsonl", ".parquet")
    names = [str(one) if typed else unescaped(one) for one in keys]
    rows = {one: row for row, one in enumerate(names)}
    wanted = [rows.get(one, -1) for one in ids]
    absent = [one for one, row in zip(ids, wanted, strict=True) if row < 0]
    if absent:
        fail(
            f"{setting}: {table.path} has no row for {len(absent)} of {len(ids)} items, {absent[0]!r} for example; "
            "expected one for each"
        )
    there = set(ids)
    twice = next((one for row, one in enumerate(names) if one in there and rows[one] != row), None)
    require(twice is None, f"{setting}: {table.path} has several rows for {twice!r}; expected one for each item")
    return wanted


def read_numbers(
    setting: str, path: str | Path, columns: Sequence[str], rows: int | None, ids: Sequence[str] | None
) -> tuple[np.ndarray, list[str] | None]:
    """Columns of numbers of a .csv, .tsv, .jsonl or .parquet table: (n, C) float64, and the ids of its rows.

    With ids and a column `id` in the table, a row for each id, in their order. Without ids of the items, the table's
    rows in their order, of which there must be `rows` where that is known. Raises InputError, with the row, for an
    entry that is no finite number, and for tables that do not fit.
    """
    expected = "a table with the column id, or as many rows as items, and a column of numbers for each boost"
    table = TableFile(Path(path), expected)
    table.require_columns(columns, f"{setting} names the columns")
    named = ID in table.names() and ids is not None
    own = ID in table.names() and rows is None and ids is None  # a table that says itself of which items it is
    found = table.entries([*([ID] if named or own else []), *columns])
    count = len(found[columns[0]]) if columns else 0
    places = list(range(count))
    if named and ids is not None:
        places = rows_of(setting, table, found[ID], ids)
    elif rows is not None:
        require(
            count == rows,
            f"{setting}: {path} has {count:,} rows for {rows:,} items; expected one for each, in their order, or the "
            "column id and items with ids",
        )
    values = np.empty((len(places), len(columns)))
    for column, name in enumerate(columns):
        for row, place in enumerate(places):
            values[row, column] = _number(found[name][place], f"{setting}: {path}: {name} of row {place + 1}")
    typed = table.kind in (".jsonl", ".parquet")
    keys = [str(one) if typed else unescaped(one) for one in found[ID]] if own else None
    return values, keys


def _number(entry: Any, where: str) -> float:
    try:
        found = float("nan") if isinstance(entry, bool) or entry is None else float(entry)
    except (TypeError, ValueError):
        found = float("nan")
    if not np.isfinite(found):
        fail(f"{where} is {str(entry)[:40]!r}; expected a finite number")
    return found
