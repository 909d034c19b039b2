"""Tables of named columns: .csv, .tsv, .jsonl and .parquet files, whose bad lines are named."""

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from vsehub.checks import InputError, fail, nearest, require
from vsehub.io.progress import byte_bar
from vsehub.io.rows import NAMED, listed, singular
from vsehub.io.text import long_fields

if TYPE_CHECKING:
    import pyarrow as pa

_SHOWN = 500  # characters of a header or an entry
_MOST_BLOCK = 2**31 - 1  # bytes that Arrow reads in one block
_DELIMITERS = {".csv": ",", ".tsv": "\t"}
_OTHERS = ";\t"  # what programs write to a .csv where the comma separates decimals
_LINES_A_STEP = 4096  # of a progress bar
_QUOTES = 'Put entries with separators, line breaks or quotes in quotes, and write a quote within as ""'
KINDS = (*_DELIMITERS, ".jsonl", ".parquet")


def separator(header: str, usual: str) -> str:
    """What separates the entries of a header: another separator only where the usual one does not occur."""
    return next((one for one in _OTHERS if usual not in header and one in header), usual)


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
        try:
            return self._header() if self.kind in _DELIMITERS else list(pq.read_schema(self.path).names)
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
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
            if self.kind in _DELIMITERS:
                table = self._arrow_table(columns)
            else:
                with pq.ParquetFile(self.path) as file:
                    table = file.read(columns=list(columns))
        except (pa.ArrowException, OSError, UnicodeDecodeError, csv.Error) as error:
            raise self._unreadable(error) from error
        return {column: table.column(column) for column in columns}

    def entries(self, columns: Sequence[str]) -> dict[str, list[Any]]:
        """Columns as plain values, None where a row has none. Raises InputError if the file is damaged.

        A .csv or .tsv is read by the csv module, strictly: Arrow takes what follows an open quote, lines and all, as
        one entry.
        """
        if self.kind == ".jsonl":
            return {column: [row.get(column) for row in self._objects] for column in columns}
        if self.kind in _DELIMITERS:
            return self._strict(columns)
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
        with self.path.open("rb") as file, byte_bar(f"reading {self.path.name}", self.path.stat().st_size) as bar:
            for number, line in enumerate(file, 1):
                bar.update(len(line))
                text = line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line
                if not text.strip():
                    continue
                try:
                    row = json.loads(text)
                except (ValueError, RecursionError) as error:
                    raise InputError(f"{self.path}:{number}: no json ({error}). Write one object per line") from error
                if not isinstance(row, dict):
                    fail(f"{self.path}:{number}: {str(row)[:_SHOWN]!r} is no object. Write one object per line")
                found.append(row)
        return found

    def _strict(self, columns: Sequence[str]) -> dict[str, list[str]]:
        with self.path.open("rb") as raw, byte_bar(f"reading {self.path.name}", self.path.stat().st_size) as bar:
            file = io.TextIOWrapper(raw, encoding="utf-8-sig", newline="")
            try:
                with long_fields():
                    reader = self._reader(file, strict=True)
                    header = next(filter(None, reader))
                    places = [header.index(column) for column in columns]
                    found: list[list[str]] = [[] for _ in columns]
                    for record in filter(None, reader):
                        if len(record) != len(header):
                            counts = f"{len(record)} entries; expected {len(header)}, as the header has"
                            fail(f"{self.path}:{reader.line_num}: {counts}. {_QUOTES}")
                        for entries, place in zip(found, places, strict=True):
                            entries.append(record[place])
                        if reader.line_num % _LINES_A_STEP == 0:
                            bar.update(raw.tell() - bar.n)
            except csv.Error as error:
                raise InputError(f"{self.path}:{reader.line_num}: {error}. {_QUOTES}") from error
            except UnicodeDecodeError as error:
                raise self._unreadable(error) from error
        return dict(zip(columns, found, strict=True))

    def _header(self) -> list[str]:
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="") as file:
            return next(filter(None, self._reader(file)), [])

    @cached_property
    def _delimiter(self) -> str:
        """What separates entries: of a .csv without a comma in its header, a semicolon or a tab that is there."""
        with self.path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            header = next((line for line in file if line.strip()), "")
        return separator(header, _DELIMITERS[self.kind])

    def _reader(self, file: Iterable[str], strict: bool = False) -> Any:
        return csv.reader(file, delimiter=self._delimiter, strict=strict)

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
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="", errors="replace") as file:
            filled = self._filled(file)  # slow: only for messages
            before = -1 if self.kind in _DELIMITERS else 0  # the header
            lines = []
            for row in rows:
                lines.append(next(islice(filled, row - before, None)))
                before = row + 1
            return lines

    def _filled(self, file: Iterable[str]) -> Iterator[int]:
        """The numbers of the lines that are not empty."""
        if self.kind == ".jsonl":
            return (number for number, line in enumerate(file, 1) if line.strip())
        reader = self._reader(file)
        return (reader.line_num for record in reader if record)

    def _unreadable(self, error: Exception) -> InputError:
        if self.kind in _DELIMITERS:
            return InputError(f"{self.path}{self._damage(error)}")
        return InputError(f"{self.path} cannot be read as {self.kind} ({error}). Copy, download or write it again")

    def _damage(self, error: Exception) -> str:
        """The damage, for the message: the first line that is not UTF-8 or has a wrong number of entries."""
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    line.decode()
                except UnicodeDecodeError as bad:
                    return f":{number}: byte 0x{line[bad.start]:02x} is not UTF-8. Save the file as UTF-8"
        with long_fields(), self.path.open(encoding="utf-8-sig", newline="") as file:
            reader = self._reader(file)
            try:
                records = filter(None, reader)
                width = len(next(records, []))
                for record in records:
                    if len(record) != width:
                        return f":{reader.line_num}: {len(record)} entries; expected {width}, as the header has"
            except csv.Error as worse:
                return f":{reader.line_num}: {worse}"
        return f" cannot be read as {self.kind} ({error})"
