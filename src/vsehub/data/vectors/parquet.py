"""Vectors in .parquet files, decoded once, a few rows at a time, into a memory-mapped scratch file."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from vsehub.checks import require
from vsehub.data.vectors.formats import FLOATS, NUMBERS, StoredMatrix, checked_kind, chosen
from vsehub.io.arrays import ScratchRows, readable, scratch_array
from vsehub.io.progress import byte_bar
from vsehub.io.rows import RowErrors, faults

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

_BATCH_BYTES = 8 << 20
_BATCH_ROWS = 1 << 18
_TOGETHER = 64  # float columns decoded at a time: each keeps one or two pages of a megabyte in memory
_HOLES = "lack a number (null, which pandas makes of NaN)"
_PANDAS_INDEX = "__index_level_"


def read_parquet(path: Path, key: str | None) -> StoredMatrix:
    """A column of lists of floats of one length, or all float columns in their order; ids from a column `id`.

    Lists may also hold int8 or uint8. key: the column of lists to take if there are several. Raises InputError if the
    file is damaged, a number or a row is missing, or lengths differ.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    # Mapped and not buffered ahead, so that Arrow holds the pages it decodes and no whole row groups.
    settings = {"memory_map": True, "pre_buffer": False, "page_checksum_verification": True}
    with readable(path, pa.ArrowException), pq.ParquetFile(path, **settings) as file:
        schema = file.schema_arrow
        require(len(set(schema.names)) == len(schema), f"{path} has two columns of one name; rename one of them")
        require(file.metadata.num_rows > 0, f"{path} has no rows; expected one vector per row")
        types = {name: _list_type(schema.field(name).type) for name in schema.names}
        lists = {name: kind for name, kind in types.items() if kind is not None}
        array = _from_columns(path, file) if not lists and key is None else _from_lists(path, file, key, lists)
        ids = _ids(path, file) if "id" in schema.names else None
    return StoredMatrix(array, NUMBERS[array.dtype.name], ids)


def _list_type(kind: "pa.DataType") -> "pa.DataType | None":
    """The list type of a column, or the list type that stores an extension such as a tensor; else None."""
    import pyarrow as pa

    kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    is_list = pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)
    return kind if is_list else None


def _float_name(kind: "pa.DataType") -> str:
    """numpy's name of Arrow's floats ("halffloat" is float16), Arrow's own name of other types."""
    return {"halffloat": "float16", "float": "float32", "double": "float64"}.get(str(kind), str(kind))


def _from_lists(path: Path, file: "pq.ParquetFile", key: str | None, lists: "dict[str, pa.DataType]") -> np.ndarray:
    """The numbers of a column of lists. lists: the columns to choose from, with their types."""
    import pyarrow as pa
    import pyarrow.compute as pc

    rows = file.metadata.num_rows
    # The lists stand for a matrix, whose number of columns the first row gives.
    found = {name: ((rows, 1), _float_name(kind.value_type)) for name, kind in lists.items()}
    column = chosen(path, key, found)
    checked_kind(f"{path}::{column}", *found[column])
    dim = 0
    bad = {what: RowErrors() for what in ("have no list", "have another length", _HOLES)}
    with ScratchRows(np.dtype(found[column][1]), f"the numbers of {path}") as scratch:
        for first, batch in _batches(path, file, [column], nested=True):
            part = batch.column(column)
            part = part.storage if isinstance(part, pa.ExtensionArray) else part
            lengths = pc.list_value_length(part).fill_null(-1).to_numpy(zero_copy_only=False)
            values = part.flatten()
            if first == 0:
                dim = int(lengths[0])
                require(
                    dim > 0,
                    f"{path}::{column} begins with a row without numbers; expected a list of floats in every row",
                )
            bad["have no list"].add(first, lengths < 0)
            bad["have another length"].add(first, (lengths != dim) & (lengths >= 0))
            if values.null_count:
                null = values.is_null().to_numpy(zero_copy_only=False)
                holes = np.zeros(len(batch), bool)
                holes[pc.list_parent_indices(part).to_numpy()[null]] = True
                bad[_HOLES].add(first, holes)
            if not any(rows.count for rows in bad.values()):
                scratch.add(values.to_numpy(zero_copy_only=False).reshape(-1, dim))
        _refuse(f"{path}::{column}, whose first row has {dim} numbers", bad)
        return scratch.array(dim)


def _from_columns(path: Path, file: "pq.ParquetFile") -> np.ndarray:
    import pyarrow as pa

    kinds = {field.name: field.type for field in file.schema_arrow if field.name != "id"}
    columns = [name for name, kind in kinds.items() if _float_name(kind) in FLOATS]
    require(
        len(columns) > 0,
        f"{path} has no column of floats or of lists of floats; columns there: "
        + ", ".join(f"{field.name} ({field.type})" for field in file.schema_arrow),
    )
    whole = [name for name, kind in kinds.items() if pa.types.is_integer(kind) and not name.startswith(_PANDAS_INDEX)]
    require(
        not whole,
        f"{path}: the columns {', '.join(whole[:5])} ({len(whole)} in all) hold whole numbers among {len(columns)} "
        "columns of floats. Make them floats where they are dimensions, leave them out where they are not",
    )
    # The rows are counted before room is made for them: the number in the file may be wrong.
    rows = sum(len(batch) for _, batch in _batches(path, file, columns[:1]))
    dtype = np.result_type(*(_float_name(kinds[name]) for name in columns))
    array = scratch_array((rows, len(columns)), dtype, f"the numbers of {path}")
    holes = np.zeros(rows, bool)
    for left in range(0, len(columns), _TOGETHER):
        group = columns[left : left + _TOGETHER]
        for first, batch in _batches(path, file, group):
            here = slice(first, first + len(batch))
            for column, name in enumerate(group, left):
                part = batch.column(name)
                array[here, column] = part.to_numpy(zero_copy_only=False)
                if part.null_count:
                    holes[here] |= part.is_null().to_numpy(zero_copy_only=False)
    found = RowErrors()
    found.add(0, holes)
    _refuse(str(path), {_HOLES: found})
    return array


def _batches(
    path: Path, file: "pq.ParquetFile", columns: list[str], nested: bool = False
) -> Iterator[tuple[int, "pa.RecordBatch"]]:
    """(first row, batch) over all rows of some columns. Raises InputError if there are not as many as the file says.

    nested: whether the columns are lists, whose bytes are not an even share of a row's.
    """
    rows, first = file.metadata.num_rows, 0
    # The size of all columns, as a bound: asking damaged metadata for one column's size ends the process, since
    # nothing catches Arrow's exception.
    total = sum(file.metadata.row_group(group).total_byte_size for group in range(file.metadata.num_row_groups))
    total = max(1, total if nested else total * len(columns) // len(file.schema_arrow))
    step = min(max(1, _BATCH_BYTES * rows // total), _BATCH_ROWS)
    with byte_bar(f"unpacking {path.name}", total) as progress:
        for batch in file.iter_batches(batch_size=step, columns=columns, use_threads=False):
            if len(batch):
                yield first, batch
            first += len(batch)
            progress.update(total * len(batch) // rows)
    require(
        first == rows,
        f"{path} says that it has {rows} rows, but {first} are there. Copy, download or write it again",
    )


def _refuse(label: str, bad: dict[str, RowErrors]) -> None:
    """Raise InputError naming the bad rows, if there are any."""
    found = faults(bad)
    require(
        not found, f"{label}: of the rows, counted from 0: {found}. Give every row all its numbers, or leave it out"
    )


def _ids(path: Path, file: "pq.ParquetFile") -> list[str]:
    import pyarrow as pa

    column = file.read(columns=["id"], use_threads=False).column("id")
    require(_is_text(column.type), f"{path}: the column id holds {column.type}; expected strings or whole numbers")
    missing = RowErrors()
    missing.add(0, column.is_null().to_numpy())
    require(missing.count == 0, f"{path}: rows {missing}, counted from 0, have no id; expected one for every row")
    ids: list[str] = column.cast(pa.string()).to_pylist()
    return ids


def read_texts(path: Path, names: Sequence[str]) -> "dict[str, pa.ChunkedArray]":
    """Those of the columns `names` of a .parquet file that hold strings or whole numbers, as strings.

    Raises InputError if the file is damaged.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    with readable(path, pa.ArrowException), pq.ParquetFile(path, memory_map=True, pre_buffer=False) as file:
        schema = file.schema_arrow
        there = [name for name in names if schema.names.count(name) == 1 and _is_text(schema.field(name).type)]
        require(
            len(there) > 0,
            f"{path} has none of the columns {', '.join(names)} as strings or whole numbers. Give it one, or name "
            "the folder of vectors itself, without two colons, to read it without ids",
        )
        table = file.read(columns=there, use_threads=False)
        return {name: table.column(name).cast(pa.string()) for name in there}


def _is_text(kind: "pa.DataType") -> bool:
    """Whether a column holds strings or whole numbers, also by a dictionary."""
    import pyarrow as pa

    kind = kind.value_type if pa.types.is_dictionary(kind) else kind
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
