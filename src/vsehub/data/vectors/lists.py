"""Vectors that are lists in text, .jsonl files and cells of .csv files, read once, some lines at a time."""

from collections.abc import Generator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail, require
from vsehub.data.records import csv_rows, json_rows
from vsehub.data.vectors.formats import FLOATS, StoredMatrix
from vsehub.io.arrays import ScratchRows

_BLOCK = 4096  # rows that are converted at a time
_SHOWN = 60  # characters of an entry
_EXPECTED = 'expected a list of numbers in each line, or objects such as {"id": "a", "vector": [0.5, -1.25]}'
_NO_ID = "some rows have an id and others none; give each one"
Row = tuple[int, str | None, list[Any]]  # the line, the id and the numbers


def read_jsonl(path: Path, key: str | None) -> StoredMatrix:
    """The list of numbers in each line of a .jsonl, as float32, with ids from `id`; lines may be lists themselves.

    key: the name of the list, if there are several. Raises InputError naming the line if it is no JSON, has no such
    list or no id where others have one, if an entry is no number, or if lengths differ.
    """
    return _stored(path, _lines(path, key))


def read_cells(path: Path, key: str | None, delimiter: str) -> StoredMatrix:
    """The list of numbers in a cell of each row of a .csv or .tsv, "[0.5, 1]" or "[0.5 1]", with ids from `id`.

    key: the column of lists, if there are several. Raises InputError as `read_jsonl` does.
    """
    return _stored(path, _cells(path, key, delimiter))


def _stored(path: Path, rows: Generator[Row, None, None]) -> StoredMatrix:
    ids: list[str] = []
    columns = 0
    with closing(rows), ScratchRows(np.dtype(np.float32), f"the numbers of {path}") as scratch:
        block: list[np.ndarray] = []
        for line, one, numbers in rows:
            columns = columns or len(numbers)
            require(
                len(numbers) == columns, f"{path}:{line}: {len(numbers)} numbers; expected {columns}, as in the first"
            )
            require((one is not None) == bool(ids) or scratch.rows + len(block) == 0, f"{path}:{line}: {_NO_ID}")
            ids += [] if one is None else [one]
            block.append(_numbers(path, line, numbers))
            if len(block) == _BLOCK:
                scratch.add(np.stack(block))
                block = []
        if block:
            scratch.add(np.stack(block))
        require(scratch.rows > 0, f"{path} has no rows; {_EXPECTED}")
        return StoredMatrix(scratch.array(columns), FLOATS["float32"], ids or None)


def _numbers(path: Path, line: int, entries: list[Any]) -> np.ndarray:
    """The entries as float32: numbers, or texts of numbers from a cell."""
    wrong = [one for one in entries if isinstance(one, bool) or not isinstance(one, int | float | str)]
    try:
        if not wrong:
            return np.array(entries, np.float64).astype(np.float32)
    except (ValueError, OverflowError):
        wrong = [one for one in entries if not is_number(one)]
    fail(f"{path}:{line}: {str(wrong[0])[:_SHOWN]!r} is not a number; {_EXPECTED}")


def is_number(entry: Any) -> bool:
    """Whether an entry is a number, or the text of one."""
    try:
        float(entry)
    except (ValueError, TypeError, OverflowError):
        return False
    return True


def _lines(path: Path, key: str | None) -> Generator[Row, None, None]:
    for line, row in json_rows(path, _EXPECTED):
        if isinstance(row, list):
            require(key is None, f"{path} holds lists without names; remove '::{key}'")
            name, one, found = "it", None, row
        else:
            require(isinstance(row, dict), f"{path}:{line}: {str(row)[:_SHOWN]!r}; {_EXPECTED}")
            key = name = _only(path, key, [name for name, value in row.items() if isinstance(value, list)])
            one, found = row.get("id"), row.get(name)
        require(isinstance(found, list) and len(found) > 0, f"{path}:{line}: {name} is no list; {_EXPECTED}")
        require(not any(isinstance(entry, str) for entry in found), f"{path}:{line}: texts in a list; {_EXPECTED}")
        yield line, None if one is None else str(one), found


def _cells(path: Path, key: str | None, delimiter: str) -> Generator[Row, None, None]:
    rows = csv_rows(path, delimiter)
    _, header = next(rows)
    own = header.index("id") if header.count("id") == 1 else None
    for line, cells in rows:
        key = _only(path, key, [name for name, cell in zip(header, cells, strict=True) if is_list(cell)])
        require(key in header, f"{path} has no column {key!r}; columns there: {', '.join(header)[:500]}")
        cell = cells[header.index(key)].strip()
        require(is_list(cell), f"{path}:{line}: {cell[:_SHOWN]!r} is no list of numbers")
        numbers = cell[1:-1].replace(",", " ").split()
        require(len(numbers) > 0, f"{path}:{line}: the list is empty")
        yield line, None if own is None else cells[own], list(numbers)


def is_list(cell: str) -> bool:
    """Whether a cell is a list in brackets."""
    return cell.strip().startswith("[") and cell.strip().endswith("]")


def _only(path: Path, key: str | None, lists: list[str]) -> str:
    """The name of the lists: `key`, or that of the only ones."""
    if key is not None:
        return key
    require(
        len(lists) == 1,
        f"{path} has {len(lists)} lists in a row ({', '.join(lists)[:500] or 'none'}); expected one, or its name after "
        f"two colons, as in {path.name}::{(lists or ['vector'])[0]}",
    )
    return lists[0]
