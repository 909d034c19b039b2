"""Tables of named columns: .csv, .tsv, .jsonl and .parquet files, whose bad lines are named."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vsehub.checks import InputError, fail, nearest, require
from vsehub.data.records import DELIMITERS, csv_rows, delimiter_of, filled_lines, json_rows, undecodable_line
from vsehub.io.rows import NAMED, listed, singular

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 500  # characters of a header or an entry
_MOST_BLOCK = 2**31 - 1  # bytes that Arrow reads in one block
KINDS = (*DELIMITERS, ".jsonl", ".parquet")


class TableFile:
    """Some columns of a .csv, .tsv, .jsonl or .parquet file.

    A .csv (with commas, semicolons or tabs) or .tsv is UTF-8 and has a header, a .jsonl an object per line. path: the
    file. expected: what a message says the table should be. kinds: the endings that are allowed. Raises InputError if
    the file has another ending or is empty.
    """

    def __init__(self, path: Path, expected: str, kinds: Sequence[str] = KINDS):
        self.path, self.kind = path, path.suffix.lower()
        words = f"{', '.join(kinds[:-1])} or {kinds[-1]}"
        require(path.is_file() and self.kind in kinds, f"{path} is not a {words} file; expected {expected}")
        require(path.stat().st_size > 0, f"{path} is empty; expected {expected}")

    def names(self) -> list[str]:
        """The names of the columns, in the file's order. Raises InputError if the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        if self.kind == ".jsonl":
            return list(dict.fromkeys(key for row in self._objects for key in row))
        if self.kind in DELIMITERS:
            return next((entries for _, entries in csv_rows(self.path, self._delimiter)), [])
        try:
            return list(pq.read_schema(self.path).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error

    def require_columns(self, columns: Sequence[str], advice: str) -> None:
        """Raise InputError with the most similar names if the table lacks a column or has it twice.

        advice: how columns are named, the end of the message.
        """
        names = self.names()
        for column in columns:
            count = names.count(column)
            near = "" if count else nearest(column, names)
            require(
                count == 1,
                f"{self.path} has {f'{count} columns' if count else 'no column'} {column!r}{near}; expected one. "
                f"Columns there: {', '.join(names)[:_SHOWN]}. {advice}",
            )

    def columns(self, columns: Sequence[str]) -> "dict[str, pa.ChunkedArray]":
        """Columns of a table that is not .jsonl, each of all rows. Raises InputError if the file is damaged."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            if self.kind in DELIMITERS:
                table = self._arrow_table(columns)
            else:
                with pq.ParquetFile(self.path) as file:
                    table = file.read(columns=list(columns))
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise self._unreadable(error) from error
        return {column: table.column(column) for column in columns}

    def entries(self, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Columns as plain values, None where a row has none. Raises InputError if the file is damaged."""
        if self.kind == ".jsonl":
            return {column: [row.get(column) for row in self._objects] for column in columns}
        if self.kind in DELIMITERS:
            rows = csv_rows(self.path, self._delimiter)
            _, header = next(rows)
            numbers = [header.index(column) for column in columns]
            entries: list[list[str]] = [[] for _ in columns]
            for _, row in rows:
                for own, number in zip(entries, numbers, strict=True):
                    own.append(row[number])
            return dict(zip(columns, entries, strict=True))
        found = self.columns(columns)
        try:
            return {column: entries.to_pylist() for column, entries in found.items()}
        except UnicodeDecodeError as error:
            raise self._unreadable(error) from error

    def refuse(
        self, mask: np.ndarray, what: str, advice: str, entries: Sequence[Any] | Mapping[int, Any] | None = None
    ) -> NoReturn:
        """Raise InputError naming the lines of rows where mask (n,) is true, and the first one's entry.

        what: what these lines do, beginning with a verb in the plural.
        """
        bad = np.flatnonzero(mask)
        entry = "" if entries is None else f" (the first: {str(entries[int(bad[0])])[:_SHOWN]!r})"
        if len(bad) == 1:
            what = singular(what)
        fail(f"{self.path}: {self.named(mask)} {what}{entry}. {advice}")

    def named(self, mask: np.ndarray) -> str:
        """The rows where mask (n,) is true as a message calls them: by their lines, the first few of them."""
        bad = np.flatnonzero(mask)
        few = bad[:NAMED].tolist()
        rows = self.kind == ".parquet"
        unit = ("row" if rows else "line") + ("s" if len(bad) > 1 else "")
        return f"{unit} {listed(few if rows else self._lines(few), len(bad))}{', counted from 0,' if rows else ''}"

    @cached_property
    def _objects(self) -> list[dict[str, Any]]:
        """The objects of a .jsonl file."""
        found = []
        for line, row in json_rows(self.path, "expected one object per line"):
            if not isinstance(row, dict):
                fail(f"{self.path}:{line}: {str(row)[:_SHOWN]!r} is no object; expected one object per line")
            found.append(row)
        return found

    @cached_property
    def _delimiter(self) -> str:
        return delimiter_of(self.path)

    def _arrow_table(self, columns: Sequence[str]) -> "pa.Table":
        import pyarrow as pa
        from pyarrow import csv as arrow

        convert = arrow.ConvertOptions(include_columns=list(columns), column_types=dict.fromkeys(columns, pa.string()))
        parse = arrow.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)
        try:
            return arrow.read_csv(self.path, parse_options=parse, convert_options=convert)
        except pa.ArrowInvalid:
            size = self.path.stat().st_size
            if not arrow.ReadOptions().block_size < size < _MOST_BLOCK:
                raise
        # Arrow fails on a line longer than a block: then the file is read again in one block.
        whole = arrow.ReadOptions(block_size=size)
        return arrow.read_csv(self.path, read_options=whole, parse_options=parse, convert_options=convert)

    def _lines(self, rows: list[int]) -> list[int]:
        """The line numbers of rows, which are given in ascending order; empty lines are not counted as rows."""
        before = -1 if self.kind in DELIMITERS else 0  # the header
        lines = []
        with closing(filled_lines(self.path)) as filled:
            for row in rows:
                lines.append(next(islice(filled, row - before, None)))
                before = row + 1
        return lines

    def _unreadable(self, error: Exception) -> InputError:
        """The damage: of a text table the first line that is not UTF-8 or has a wrong number of entries."""
        if self.kind in DELIMITERS:
            found = undecodable_line(self.path)
            if found:
                return InputError(f"{self.path}{found}")
            try:
                for _ in csv_rows(self.path, self._delimiter):
                    pass
            except InputError as named:
                return named
        return InputError(f"{self.path} cannot be read as {self.kind} ({error}). Copy, download or write it again")
