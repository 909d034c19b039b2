"""Pairs of queries and the items that answer them, ids and labels, from the user's files."""

import csv
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, existing, fail, require
from vsehub.io.rows import NAMED, listed
from vsehub.io.text import long_fields, read_lines

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("query", "item")
_SHOWN = 500  # characters of a header or an entry
_MOST_BLOCK = 2**31 - 1  # bytes that Arrow reads in one block
_DIGITS = 18  # of a row number at most, so that it fits into 64 bits


class PairTable:
    """The columns query and item of a .csv (UTF-8, with a header) or .parquet file; other columns are not read.

    Raises InputError if the file is damaged, lacks a column or has no pairs.
    """

    def __init__(self, path: Path):
        require(
            path.is_file() and path.suffix.lower() in (".csv", ".parquet"),
            f"{path} is not a .csv or .parquet file; expected a table of pairs with the columns query and item",
        )
        require(path.stat().st_size > 0, f"{path} is empty; expected the header query,item and one pair per line")
        self.path = path
        self._csv = path.suffix.lower() == ".csv"
        self._columns = self._read_csv() if self._csv else self._read_parquet()
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
            places = torch.from_numpy(np.array(found.to_numpy(), dtype=np.int64))
            what = f"name ids that the {side} do not have"
            advice = f"The {side} have {count} ids, {ids[0]!r} the first; give these, or remove the lines"
        else:
            places = torch.from_numpy(np.array(self._whole(column, side, entries), dtype=np.int64))
            what = f"name rows that the {side} do not have"
            advice = f"The {side} are numbered from 0 to {count - 1}; as long as they have no ids, give these numbers"
        outside = ((places < 0) | (places >= count)).numpy()
        if outside.any():
            self.refuse(outside, what, advice, column)
        return places

    def refuse(self, mask: np.ndarray, what: str, advice: str, column: str | None = None) -> NoReturn:
        """Raise InputError naming the lines of pairs where mask (P,) is true, and the first one's entry in `column`.

        what: what these lines do, beginning with a verb in the plural.
        """
        bad = np.flatnonzero(mask)
        named = bad[:NAMED].tolist()
        unit = ("line" if self._csv else "row") + ("s" if len(bad) > 1 else "")
        numbers = listed(self._lines(named) if self._csv else named, len(bad))
        entry = "" if column is None else f" (the first: {str(self._columns[column][named[0]])[:_SHOWN]!r})"
        counted = "" if self._csv else ", counted from 0,"
        if len(bad) == 1:
            verb, _, rest = what.partition(" ")
            what = f"{'has' if verb == 'have' else f'{verb}s'} {rest}"
        fail(f"{self.path}: {unit} {numbers}{counted} {what}{entry}. {advice}")

    def _whole(self, column: str, side: str, entries: "pa.ChunkedArray") -> np.ndarray:
        """The entries as whole numbers."""
        import pyarrow as pa
        import pyarrow.compute as pc

        advice = f"The {side} have no ids, so give row numbers counted from 0, or give the {side} ids"
        text = pa.types.is_string(entries.type) or pa.types.is_large_string(entries.type)
        require(
            text or pa.types.is_integer(entries.type),
            f"{self.path}: the column {column} holds {entries.type}. {advice}",
        )
        # Arrow's cast accepts more than plain digits: 0x1, and -0.
        if text or not pa.types.is_signed_integer(entries.type):
            words = entries.cast(pa.string())
            decimal = pc.and_(pc.ascii_is_decimal(words), pc.less_equal(pc.binary_length(words), _DIGITS)).to_numpy()
            if not decimal.all():
                self.refuse(~decimal, "give no row number", advice, column)
        numbers: np.ndarray = entries.cast(pa.int64()).to_numpy()
        return numbers

    def _read_csv(self) -> "dict[str, pa.ChunkedArray]":
        import pyarrow as pa

        try:
            header = self._header()
            for column in COLUMNS:
                count = header.count(column)
                require(
                    count == 1,
                    f"{self.path}:1: the header has {f'{count} columns' if count else 'no column'} {column!r}; expected"
                    f" one. Columns there: {', '.join(header)[:_SHOWN]}. The first line names the columns, separated"
                    " by commas: query,item",
                )
            table = self._arrow_table()
        except (pa.ArrowException, UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{self.path}{self._damage(error)}") from error
        return {column: table.column(column) for column in COLUMNS}

    def _arrow_table(self) -> "pa.Table":
        import pyarrow as pa
        from pyarrow import csv as arrow

        convert = arrow.ConvertOptions(include_columns=list(COLUMNS), column_types=dict.fromkeys(COLUMNS, pa.string()))
        parse = arrow.ParseOptions(newlines_in_values=True)
        try:
            return arrow.read_csv(self.path, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            size = self.path.stat().st_size
            if not arrow.ReadOptions().block_size < size < _MOST_BLOCK:
                raise
        # Arrow fails on a line longer than a block: then the file is read again in one block.
        whole = arrow.ReadOptions(block_size=size)
        return arrow.read_csv(self.path, read_options=whole, parse_options=parse, convert_options=convert)

    def _read_parquet(self) -> "dict[str, pa.ChunkedArray]":
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            with pq.ParquetFile(self.path) as file:
                names = file.schema_arrow.names
                for column in COLUMNS:
                    require(
                        names.count(column) == 1, f"{self.path} has the columns {', '.join(names)}; expected {column}"
                    )
                table = file.read(columns=list(COLUMNS))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise InputError(
                f"{self.path} cannot be read as .parquet ({error}). Copy, download or write it again"
            ) from error
        return {column: table.column(column) for column in COLUMNS}

    def _header(self) -> list[str]:
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="") as file:
            return next(filter(None, csv.reader(file)), [])

    def _lines(self, pairs: list[int]) -> list[int]:
        """The line numbers of pairs, which are given in ascending order; empty lines are not counted as pairs."""
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
            reader = csv.reader(file)
            filled = (reader.line_num for record in reader if record)  # slow: only for messages
            before = -1  # the header
            lines = []
            for pair in pairs:
                lines.append(next(islice(filled, pair - before, None)))
                before = pair + 1
            return lines

    def _damage(self, error: Exception) -> str:
        """The damage of a csv, for the message: its first line that is not UTF-8 or has a wrong number of entries."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as bad:
                    return f":{number}: byte 0x{line[bad.start]:02x} is not UTF-8. Save the file as UTF-8"
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file)
            try:
                records = filter(None, reader)
                width = len(next(records, []))
                for record in records:
                    if len(record) != width:
                        return f":{reader.line_num}: {len(record)} entries; expected {width}, as the header has"
            except csv.Error as worse:
                return f":{reader.line_num}: {worse}"
        return f" cannot be read as .csv ({error})"


def read_ids(path: str | Path, name: str = "ids") -> list[str]:
    """The ids in a UTF-8 text file, one per line. Raises InputError if one comes twice or a line is empty."""
    ids = read_lines(existing(name, path, "Give a text file with one id per line"), "id")
    distinct_ids(str(path), ids)
    return ids


def read_labels(path: str | Path, name: str = "labels") -> list[str]:
    """The captions, or other texts to show, in a UTF-8 text file, one per line; any may be repeated."""
    return read_lines(existing(name, path, "Give a text file with one caption per line"), "caption")


def distinct_ids(name: str, ids: Sequence[str]) -> None:
    """Raise InputError for an id that is repeated in `ids`. name: the name of the ids in the message."""
    if len(set(ids)) == len(ids):
        return
    seen: dict[str, int] = {}
    for place, one in enumerate(ids):
        if one in seen:
            raise InputError(
                f"{name}: {one!r} comes twice, as number {seen[one]} and {place}, counted from 0 "
                f"({len(ids) - len(set(ids))} repeats in all); expected each id once"
            )
        seen[one] = place


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
