"""Pairs of queries and the items that answer them, ids and labels, from the user's files."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, existing, require
from vsehub.data.tables import TableFile
from vsehub.io.spreadsheet import unescaped
from vsehub.io.text import read_lines

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("query", "item")
_EXPECTED = "a table of pairs with the columns query and item, one pair per line"
_IDS = {
    "queries": "query_ids=FILE",
    "items": "item_ids=FILE",
    "images": "data.image_ids=FILE",
    "texts": "data.text_ids=FILE",
}
_DIGITS = 18  # digits of a row number, so that the number fits into 64 bits


class PairTable:
    """The columns query and item of a .csv (UTF-8, with a header) or .parquet file; other columns are not read.

    Raises InputError if the file is damaged, lacks a column or has no pairs.
    """

    def __init__(self, path: Path):
        self._table = TableFile(path, _EXPECTED, (".csv", ".parquet"))
        self._table.require_columns(COLUMNS, "The first line of a .csv names the columns: query,item")
        self._columns = self._table.columns(COLUMNS)
        if self._table.kind == ".csv":
            self._columns = {name: _unescaped(entries) for name, entries in self._columns.items()}
        require(len(self._columns["query"]) > 0, f"{path} has no pairs; expected one per line after the header")

    def rows(self, column: str, side: str, count: int, ids: Sequence[str] | None) -> Tensor:
        """The entries of `column` as row numbers (P,) int64 of `side`, which has `count` rows.

        ids: of the rows, in their order; None: the entries are row numbers counted from 0. Raises InputError naming the
        lines with other entries.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        entries = self._columns[column]
        if entries.null_count:
            self.refuse(entries.is_null().to_numpy(), f"have no {column}", "Give every pair both")
        if ids is not None:
            found = pc.index_in(entries.cast(pa.string()), value_set=pa.array(ids, pa.string())).fill_null(-1)
            rows = torch.from_numpy(np.array(found.to_numpy(), dtype=np.int64))
            what = f"name ids that the {side} do not have"
            advice = f"The {side} have {count} ids, {ids[0]!r} the first; give these, or remove the lines"
        else:
            rows = torch.from_numpy(np.array(self._whole(column, side, entries), dtype=np.int64))
            what = f"name rows that the {side} do not have"
            advice = f"The {side} are numbered from 0 to {count - 1}; as long as they have no ids, give these numbers"
        outside = ((rows < 0) | (rows >= count)).numpy()
        if outside.any():
            self.refuse(outside, what, advice, column)
        return rows

    def refuse(self, mask: np.ndarray, what: str, advice: str, column: str | None = None) -> NoReturn:
        """Raise InputError naming the lines of pairs where mask (P,) is true, and the first one's entry in `column`.

        what: what these lines do, beginning with a verb in the plural.
        """
        self._table.refuse(mask, what, advice, None if column is None else self._columns[column])

    def _whole(self, column: str, side: str, entries: "pa.ChunkedArray") -> np.ndarray:
        """The entries as whole numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        advice = f"The {side} have no ids, so give row numbers counted from 0, or give the {side} ids: {_IDS[side]}"
        text = pa.types.is_string(entries.type) or pa.types.is_large_string(entries.type)
        require(
            text or pa.types.is_integer(entries.type),
            f"{self._table.path}: the column {column} holds {entries.type}. {advice}",
        )
        # Arrow's cast accepts more than plain digits: 0x1, and -0.
        if text or not pa.types.is_signed_integer(entries.type):
            words = entries.cast(pa.string())
            decimal = pc.and_(pc.ascii_is_decimal(words), pc.less_equal(pc.binary_length(words), _DIGITS)).to_numpy()
            if not decimal.all():
                self.refuse(~decimal, "give no row number", advice, column)
        numbers: np.ndarray = entries.cast(pa.int64()).to_numpy()
        return numbers


def read_ids(path: str | Path, name: str = "ids") -> list[str]:
    """The ids in a UTF-8 text file, one per line. Raises InputError if one comes twice or a line is empty."""
    ids = read_lines(existing(name, path, "Give a text file with one id per line"), "id")
    distinct_ids(str(path), ids)
    return ids


def _unescaped(entries: "pa.ChunkedArray") -> "pa.ChunkedArray":
    """The entries of a .csv as they were before they were escaped for spreadsheets."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.starts_with(entries, "'")).as_py():
        return entries  # nearly all tables
    return pa.chunked_array([[one if one is None else unescaped(one) for one in entries.to_pylist()]], pa.string())


def read_labels(path: str | Path, name: str = "labels") -> list[str]:
    """The captions, or other texts to show, in a UTF-8 text file, one per line; any may be repeated."""
    return read_lines(existing(name, path, "Give a text file with one caption per line"), "caption")


def distinct_ids(name: str, ids: Sequence[str]) -> None:
    """Raise InputError for an id that is repeated in `ids`. name: the name of the ids in the message."""
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for row, one in enumerate(ids):
        if one in seen:
            raise InputError(
                f"{name}: {one!r} comes twice, as number {seen[one]} and {row}, counted from 0 "
                f"({len(ids) - len(set(ids))} repeats in all); expected each id once"
            )
        seen[one] = row


def read_truth(
    path: str | Path,
    queries: int,
    items: int,
    query_ids: Sequence[str] | None = None,
    item_ids: Sequence[str] | None = None,
) -> tuple[Tensor, Tensor]:
    """The pairs of a table with the columns query and item, in its order: query (P,) and item (P,), int64 row numbers.

    path: a .csv (UTF-8, with a header, columns in any order, others ignored) or .parquet. An entry is an id if the side
    has ids, else a row number counted from 0. A query may have any number of items, or none. queries, items: the number
    of rows of each side. Raises InputError naming the lines with an unknown id, a row number out of range, or a
    repeated pair.
    """
    sides = {"query": ("queries", queries, query_ids), "item": ("items", items, item_ids)}
    for name, count, ids in sides.values():
        if ids is not None:
            require(len(ids) == count, f"{name}: {len(ids)} ids for {count} rows; expected one per row")
            distinct_ids(f"the ids of the {name}", ids)
    table = PairTable(existing("truth", path, "Give a table of pairs with the columns query and item"))
    query, item = (table.rows(column, *side) for column, side in sides.items())
    pairs = query * items + item
    ordered = pairs.sort().values
    if (ordered[1:] == ordered[:-1]).any():
        ordered, order = pairs.sort(stable=True)
        repeats = torch.zeros(len(pairs), dtype=torch.bool)
        repeats[order[1:]] = ordered[1:] == ordered[:-1]
        table.refuse(repeats.numpy(), "repeat a pair that came before", "Keep each pair once")
    return query, item


def connected(queries: np.ndarray, items: np.ndarray, query_count: int, item_count: int) -> np.ndarray:
    """The group of each query, (query_count,) numbers: queries that share items, directly or through others, have one.

    queries, items: (P,) positions of pairs, in any order.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    ends = queries, query_count + items
    graph = coo_array((np.ones(len(queries), bool), ends), shape=(query_count + item_count,) * 2)
    groups: np.ndarray = connected_components(graph, directed=False)[1]
    return groups[:query_count]
