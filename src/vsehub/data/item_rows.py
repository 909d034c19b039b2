"""Tables with a row for each item: found by the items' ids, or in the order of the items."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from vsehub.checks import fail, require
from vsehub.data.tables import TableFile
from vsehub.io.spreadsheet import unescaped

ID = "id"


def rows_of(setting: str, table: TableFile, keys: Sequence[Any], ids: Sequence[str]) -> list[int]:
    """The row of each of the items' ids (n,) in a table whose column `id` is `keys`; rows of other ids are ignored.

    setting: what gave the table, for messages. Raises InputError if an item has no row or several.
    """
    names = _as_ids(table, keys)
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


def read_texts(setting: str, path: str | Path, column: str, rows: int, ids: Sequence[str] | None) -> list[str]:
    """A column of a .csv, .tsv, .jsonl or .parquet table as texts, one for each item (rows,).

    ids: of the items; a table with a column `id` then has a row for each, and further ones are ignored. Without either,
    the table's rows are the items in their order. Raises InputError for a table that does not fit and, with the row,
    for an empty entry.
    """
    table = _opened(setting, path, [column])
    (entries,), places = _of_items(setting, table, [column], rows, ids)
    texts = ["" if one is None or one != one else str(one).strip() for one in entries]
    empty = next((place for place, one in zip(places, texts, strict=True) if not one), None)
    if empty is not None:
        fail(f"{setting}: {path}: {column} of row {empty + 1} is empty; expected an entry for each item")
    return texts


def _of_items(
    setting: str, table: TableFile, columns: Sequence[str], rows: int, ids: Sequence[str] | None
) -> tuple[list[list[Any]], Sequence[int]]:
    """Entries (C, rows) of a table in the order of the items, and the rows of the table that they are from."""
    if ids is not None and ID in table.names():
        found = table.entries([ID, *columns])
        places = rows_of(setting, table, found[ID], ids)
        return [[found[name][place] for place in places] for name in columns], places
    found = table.entries(columns)
    count = len(found[columns[0]])
    require(
        count == rows,
        f"{setting}: {table.path} has {count:,} rows for {rows:,} items; expected one for each, in their order, or the "
        "column id and items with ids",
    )
    return [found[name] for name in columns], range(rows)


def _opened(setting: str, path: str | Path, columns: Sequence[str]) -> TableFile:
    expected = "a table with the column id, or as many rows as items, and the columns that are named"
    table = TableFile(Path(path), expected)
    table.require_columns(columns, f"{setting} has a row for each item")
    return table


def _as_ids(table: TableFile, keys: Sequence[Any]) -> list[str]:
    """Entries of the column `id` as texts."""
    typed = table.kind in (".jsonl", ".parquet")
    return [str(one) if typed else unescaped(one) for one in keys]
