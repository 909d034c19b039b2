"""Tables with a row for each item: found by the items' ids, or in the order of the items."""

from collections.abc import Sequence
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


def _as_ids(table: TableFile, keys: Sequence[Any]) -> list[str]:
    """Entries of the column `id` as texts."""
    typed = table.kind in (".jsonl", ".parquet")
    return [str(one) if typed else unescaped(one) for one in keys]
