"""Vectors in .csv and .tsv files, read once, some lines at a time, into a memory-mapped scratch file."""

from collections import Counter
from itertools import islice
from pathlib import Path
from typing import NoReturn

import numpy as np

from vsehub.checks import InputError, require
from vsehub.data.records import csv_rows, delimiter_of
from vsehub.data.vectors.formats import FLOATS, StoredMatrix
from vsehub.data.vectors.lists import is_list, is_number, read_cells
from vsehub.io.arrays import ScratchRows
from vsehub.io.progress import byte_bar
from vsehub.io.rows import listed

_BLOCK_BYTES = 8 << 20
_WORDS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SHOWN = 60  # characters of a cell


def read_delimited(path: Path, key: str | None) -> StoredMatrix:
    """The numbers of a .csv or .tsv, one vector per line, as float32, and ids from a column `id`.

    The first line names the columns if it holds no numbers, or if it numbers them from 0, as pandas does. Cells that
    are lists are read by `lists.read_cells`; key: None where they are numbers. Raises InputError naming the line if a
    cell is no number or a line has too few or too many.
    """
    import pyarrow as pa
    from pyarrow import csv as arrow

    delimiter = delimiter_of(path)
    head = [entries for _, entries in islice(csv_rows(path, delimiter), 2)]
    require(len(head) > 0, f"{path} has no rows; expected one vector per line")
    if any(is_list(cell) for cell in head[-1]) and len(head) > 1:
        return read_cells(path, key, delimiter)
    require(key is None, f"{path} is one table without a name; remove '::{key}'")
    names, has_header = _columns(path, head[0])
    numbers = [name for name in names if name != "id"]
    kinds = dict.fromkeys(numbers, pa.float32()) | ({"id": pa.string()} if "id" in names else {})
    ids: list[str] = []
    with ScratchRows(np.dtype(np.float32), f"the numbers of {path}") as scratch:
        try:
            read = arrow.ReadOptions(
                use_threads=False, block_size=_BLOCK_BYTES, column_names=None if has_header else names
            )
            parse = arrow.ParseOptions(delimiter=delimiter)
            # Without words for null: an empty cell is no number either.
            convert = arrow.ConvertOptions(column_types=kinds, null_values=[])
            with (
                arrow.open_csv(path, read_options=read, parse_options=parse, convert_options=convert) as reader,
                byte_bar(f"reading {path.name}", path.stat().st_size) as bar,
            ):
                for batch in reader:
                    scratch.add(np.stack([batch.column(name).to_numpy() for name in numbers], axis=1))
                    if "id" in batch.schema.names:
                        ids += batch.column("id").to_pylist()
                    bar.update(batch.nbytes)
        except (pa.ArrowException, UnicodeDecodeError) as error:
            _refuse(path, delimiter, names, has_header, error)
        require(scratch.rows > 0, f"{path} has no rows; expected one vector per line")
        return StoredMatrix(scratch.array(len(numbers)), FLOATS["float32"], ids if "id" in names else None)


def _columns(path: Path, cells: list[str]) -> tuple[list[str], bool]:
    """The names of the columns, made up if there is no header, and whether there is one. cells: of the first line."""
    others = [cell for cell in cells if cell not in ("id", "")]
    if others == [str(number) for number in range(len(others))] or not any(map(is_number, cells)):
        require(
            "" not in cells,
            f"{path}:1: a column has no name. So pandas writes its index: write the table again with index=False, or "
            "name the column id",
        )
        twice = sorted(cell for cell, count in Counter(cells).items() if count > 1)
        require(not twice, f"{path}:1: the header names {listed(twice)} twice; rename one of them")
        require(len(others) > 0, f"{path}:1: the header has no column but id; expected one for each dimension")
        return cells, True
    words = [cell for cell in cells if not is_number(cell)]
    require(
        not words,
        f"{path}:1: {listed([repr(one[:_SHOWN]) for one in words])} among numbers; expected a header without numbers, "
        "or the numbers of a vector. Remove such columns, or give them a header with the column id",
    )
    return [str(number) for number in range(len(cells))], False


def _refuse(path: Path, delimiter: str, names: list[str], has_header: bool, error: Exception) -> NoReturn:
    """Raise InputError naming the first line that cannot be read. Slow: reads the file again."""
    for line, cells in islice(csv_rows(path, delimiter), int(has_header), None):
        for name, cell in zip(names, cells, strict=True):
            place = f"in column {name[:_SHOWN]!r}" if has_header else f"in place {int(name) + 1}"
            require(
                name == "id" or is_number(cell),
                f"{path}:{line}: {cell[:_SHOWN]!r} {place} is not a number. Give every line all its numbers, separated "
                f"by {_WORDS[delimiter]}; besides them only a column id may be there",
            )
    raise InputError(
        f"{path} cannot be read as {path.suffix} ({error}). Write it again, one vector per line, separated by "
        f"{_WORDS[delimiter]}"
    ) from error
