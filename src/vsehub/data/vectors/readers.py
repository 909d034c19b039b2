"""Vectors in files, each read by the library of its format; `.npy` and `.safetensors` are memory-mapped."""

import json
import logging
import zipfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.data.tables import header
from vsehub.io.arrays import listed, readable

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Read = tuple[np.ndarray | Tensor, list[str] | None]  # the matrix (n, D) and the ids of its rows

NUMBERS = ("float16", "bfloat16", "float32", "float64", "int8", "uint8")
IDS = ("image_path", "key", "url")  # columns of the metadata whose entries may serve as ids, the first one preferred
LABELS = "caption"
_SAFETENSORS = {"F16": "<f2", "BF16": "<i2", "F32": "<f4", "F64": "<f8", "I8": "i1", "U8": "u1"}
_BLOCK_BYTES = 1 << 24  # longest line of a .csv or .jsonl
_INDEX = "__index_level_"  # begins the names of columns in which pandas stores an index


def matrix_dtype(label: str, array: "np.ndarray | Tensor | Shards") -> torch.dtype:
    """The torch dtype of a matrix of vectors. Raises InputError, beginning with `label`, if it is something else."""
    kind = str(array.dtype).removeprefix("torch.") if isinstance(array, Tensor) else array.dtype.name
    require(
        kind in NUMBERS and len(array.shape) == 2 and min(array.shape) > 0,
        f"{label} holds {kind} of shape {tuple(array.shape)}; expected (rows, dim) of {', '.join(NUMBERS)}",
    )
    dtype: torch.dtype = getattr(torch, kind)
    return dtype


def read_file(path: Path, key: str | None) -> Read:
    """The matrix of a file, and the ids of its rows. key: the name of an array. Raises InputError naming the file."""
    with readable(path, Exception):  # numpy and torch parse Python: damage raises almost anything
        return _READERS[path.suffix.lower()](path, key)


def _chosen(path: Path, key: str | None, names: Iterable[str], matrices: Iterable[str]) -> str:
    """The name of the array to read: `key`, or the only one of the matrices."""
    names, wanted = list(names), list(matrices) if key is None else [key]
    asked = f"{path}::{key}" if key is not None else str(path)
    require(
        len(wanted) == 1 and wanted[0] in names,
        f"{asked}: expected one matrix, or its name after two colons; there are the arrays {listed(names)}",
    )
    return wanted[0]


def _read_npy(path: Path, key: str | None) -> Read:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    require(key is None and isinstance(array, np.ndarray), f"{path}: expected one array without a name")
    return array, None


def _read_npz(path: Path, key: str | None) -> Read:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if key in (None, name) or name == "ids"}
        name = _chosen(path, key, archive.files, (one for one, array in arrays.items() if array.ndim == 2))
    ids = arrays["ids"].astype(str).ravel().tolist() if "ids" in arrays else None
    "".join(ids or ()).encode()  # numpy's characters may be half of a pair of surrogates
    return arrays[name], ids


def read_safetensors(path: Path, key: str | None) -> Read:
    """The mapped matrix `key` of a .safetensors file, or its only one, and no ids."""
    from safetensors import safe_open

    # Opened only for its checks: its torch tensors are private maps, which fail for files larger than the memory.
    with safe_open(path, framework="np") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
    name = _chosen(path, key, shapes, (one for one, shape in shapes.items() if len(shape) == 2))
    with path.open("rb") as file:
        begin = 8 + int.from_bytes(file.read(8), "little")
        stored = json.loads(file.read(begin - 8))[name]
    require(stored["dtype"] in _SAFETENSORS, f"{path}::{name} holds {stored['dtype']}; expected {listed(NUMBERS)}")
    brain = stored["dtype"] == "BF16"  # which numpy lacks; torch takes writable arrays only
    kind, first = _SAFETENSORS[stored["dtype"]], begin + stored["data_offsets"][0]
    array = np.memmap(path, kind, "c" if brain else "r", first, tuple(stored["shape"]))
    return (torch.from_numpy(array).view(torch.bfloat16) if brain else array), None


def _read_tensors(path: Path, key: str | None) -> Read:
    found = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if key is not None or isinstance(found, dict):
        tensors: dict[str, Any] = found if isinstance(found, dict) else {}
        matrices = [name for name, tensor in tensors.items() if getattr(tensor, "ndim", 0) == 2]
        found = tensors[_chosen(path, key, tensors, matrices)]
    tensor = found.detach()
    plain = tensor.is_contiguous() and not tensor.is_nested and tensor.device.type == "cpu"
    require(plain, f"{path}: expected a plain tensor of numbers")
    return tensor, None


def _read_delimited(path: Path, key: str | None) -> Read:
    import pyarrow as pa
    from pyarrow import csv

    delimiter, names = header(path)
    columns, bare = [name for name in names if name != "id"], False
    if columns != [str(number) for number in range(len(columns))]:  # a header of pandas
        with suppress(ValueError):
            bare = np.array(names, float).size > 0
    require(key is None and "" not in names, f"{path}: expected columns of numbers, each with a name, and of ids, id")
    names = [str(number) for number in range(len(names))] if bare else names
    kinds = {name: pa.string() if name == "id" else pa.float32() for name in names}
    table = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=names if bare else None, block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        # Without words for null: an empty cell is not a number.
        convert_options=csv.ConvertOptions(column_types=kinds, null_values=[]),
    )
    return _of_columns(path, table)


def _read_jsonl(path: Path, key: str | None) -> Read:
    from pyarrow import json as arrow

    table = arrow.read_json(path, read_options=arrow.ReadOptions(block_size=_BLOCK_BYTES))
    array, ids = _of_lists(path, table, key)
    return array.astype(np.float32), ids


def _read_parquet(path: Path, key: str | None) -> Read:
    import pyarrow as pa
    from pyarrow import parquet

    schema = parquet.read_schema(path)
    lists = _vectors(schema)
    if lists or key is not None:
        columns = [_chosen(path, key, schema.names, lists)]
    else:
        columns = [field.name for field in schema if pa.types.is_floating(field.type)]
        whole = [field.name for field in schema if pa.types.is_integer(field.type) and field.name != "id"]
        whole = [name for name in whole if not name.startswith(_INDEX)]
        require(not whole, f"{path}: {listed(whole)} hold whole numbers; make dimensions floats, leave others out")
    wanted = [*columns, *({"id"} & {*schema.names})]
    table = parquet.read_table(path, columns=wanted, page_checksum_verification=True)
    return _of_lists(path, table, columns[0]) if lists or key is not None else _of_columns(path, table)


def _vectors(schema: "pa.Schema") -> list[str]:
    """The columns of lists of numbers."""
    import pyarrow as pa

    tests = pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list
    kinds = {field.name: getattr(field.type, "storage_type", field.type) for field in schema}
    return [
        name
        for name, kind in kinds.items()
        if any(test(kind) for test in tests)
        and (pa.types.is_floating(kind.value_type) or pa.types.is_integer(kind.value_type))
    ]


def _of_lists(path: Path, table: "pa.Table", key: str | None) -> tuple[np.ndarray, list[str] | None]:
    import pyarrow.compute as pc

    name = _chosen(path, key, table.column_names, _vectors(table.schema))
    column = table.column(name)
    column = column.cast(getattr(column.type, "storage_type", column.type))  # of an extension such as a tensor
    lengths = pc.unique(pc.list_value_length(column)).to_pylist()
    require(
        len(lengths) == 1 and bool(lengths[0]),
        f"{path}: the lists of {name} have {listed(lengths) or 'no'} numbers; expected one length",
    )
    return pc.list_flatten(column).to_numpy().reshape(len(column), -1), _ids(path, table)


def _of_columns(path: Path, table: "pa.Table") -> Read:
    columns = [table.column(name) for name in table.column_names if name != "id"]
    require(len(columns) > 0 and len(table) > 0, f"{path}: expected rows, and columns of numbers or of lists")
    kinds = [column.type.to_pandas_dtype() for column in columns]
    array = np.empty((len(table), len(columns)), np.result_type(*kinds))
    for place, column in enumerate(columns):
        array[:, place] = column.to_numpy()
    return array, _ids(path, table)


def _ids(path: Path, table: "pa.Table") -> list[str] | None:
    import pyarrow as pa

    if "id" not in table.column_names:
        return None
    column = table.column("id")
    require(column.null_count == 0, f"{path}: {column.null_count} rows have no id; expected one in each row")
    ids: list[str] = column.cast(pa.string()).to_pylist()
    return ids


_READERS: dict[str, Callable[[Path, str | None], Read]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": read_safetensors,
    ".parquet": _read_parquet,
    ".csv": _read_delimited,
    ".tsv": _read_delimited,
    ".jsonl": _read_jsonl,
    ".pt": _read_tensors,
    ".pth": _read_tensors,
}


class Shards:
    """Files of matrices (n_i, D) of one type as one matrix (n, D), with the ids of all rows.

    key: the column of `.parquet` files. `.npy` files are mapped only while they are read: a map takes one of the
    process's file handles. Raises InputError naming a file whose rows are not like those before.
    """

    shape: tuple[int, int]
    dtype: np.dtype

    def __init__(self, paths: Sequence[Path], key: str | None):
        self._parts: list[tuple[Path, np.ndarray | None]] = []
        self.counts: list[int] = []
        self.ids: list[str] = []
        for path in paths:
            array, ids = read_file(path, key)
            matrix_dtype(str(path), array)
            assert isinstance(array, np.ndarray)  # of .npy or .parquet
            dim, dtype = array.shape[1], array.dtype.newbyteorder("=")
            require(
                not self.counts or (dim, dtype) == (self.shape[1], self.dtype),
                f"{path} holds rows of {dim} {dtype}, unlike the files before it",
            )
            self._parts.append((path, None if isinstance(array, np.memmap) else array))
            self.counts.append(len(array))
            self.ids += ids or []
            self.shape, self.dtype = (sum(self.counts), dim), dtype

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice, or of row numbers (b,): (b, D)."""
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        found = np.empty((len(rows), self.shape[1]), self.dtype)
        ends = np.cumsum(self.counts)
        owners = np.searchsorted(ends, rows, "right")
        for number in np.unique(owners).tolist():
            path, array = self._parts[number]
            mine = owners == number
            with readable(path, Exception):
                array = np.load(path, mmap_mode="r", allow_pickle=False) if array is None else array
                found[mine] = array[rows[mine] - (ends[number] - self.counts[number])]
        return found


def read_metadata(paths: Sequence[Path], rows: Sequence[int]) -> tuple[list[str] | None, list[str] | None]:
    """Ids and captions of clip-retrieval's metadata, one file for each shard. rows: of the shards.

    Ids are the first column among `IDS` that has a different entry in each row.
    """
    import pyarrow as pa
    from pyarrow import parquet

    tables = []
    for path, count in zip(paths, rows, strict=True):
        with readable(path, Exception):
            names = [name for name in parquet.read_schema(path).names if name in (*IDS, LABELS)]
            table = parquet.read_table(path, columns=names)
            require(len(table) == count, f"{path} has {len(table)} rows; expected {count}, one for each vector")
            tables.append(table.cast(pa.schema([(name, pa.string()) for name in names])))
    table = pa.concat_tables(tables, promote_options="default")
    full = {name: table[name] for name in table.column_names if not table[name].null_count}
    ids = next((full[name] for name in IDS if name in full and len(full[name].unique()) == sum(rows)), None)
    if ids is None:
        log.warning("%s: no column of %s has a different entry in each row: no ids", paths[0].parent, listed(IDS))
    return ids and ids.to_pylist(), full[LABELS].to_pylist() if LABELS in full else None
