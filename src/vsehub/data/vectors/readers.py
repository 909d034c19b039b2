"""Vectors in files, each read by the library of its format; `.npy`, `.safetensors` and `.pt` are memory-mapped."""

import logging
import zipfile
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from pyarrow import csv, json, parquet
from safetensors import safe_open
from torch import Tensor

from vsehub.checks import require
from vsehub.data.tables import header
from vsehub.io.arrays import listed, readable

log = logging.getLogger(__name__)

MatrixAndIds = tuple[np.ndarray | Tensor, list[str] | None]  # the matrix (n, D) and the ids of its rows

NUMBERS = ("float16", "bfloat16", "float32", "float64", "int8", "uint8")
IDS = ("image_path", "key", "url")  # columns of the metadata whose entries may serve as ids, the first one preferred
LABELS = "caption"
_BLOCK_BYTES = 1 << 24  # longest line of a .csv or .jsonl
_NOT_DIMENSIONS = ("id", "label", "score")  # names of numeric columns that are not dimensions
_INDEX = "__index_level_"  # begins the names of columns in which pandas stores an index


def matrix_dtype(label: str, array: "np.ndarray | Tensor | Shards") -> torch.dtype:
    """The torch dtype of a matrix of vectors. Raises InputError, beginning with `label`, if it is something else."""
    kind = str(array.dtype).removeprefix("torch.") if isinstance(array, Tensor) else array.dtype.name
    require(
        kind in NUMBERS and len(array.shape) == 2 and min(array.shape) > 0 and not hasattr(array, "mask"),
        f"{label} holds {kind} of shape {tuple(array.shape)}; expected (rows, dim) of {', '.join(NUMBERS)}, not masked",
    )
    return getattr(torch, kind)


def read_file(path: Path, key: str | None) -> MatrixAndIds:
    """The matrix of a file, and the ids of its rows. key: the name of an array. Raises InputError naming the file."""
    with readable(path, Exception):  # numpy and torch parse Python: damage raises almost anything
        return _READERS.get(path.suffix.lower(), _read_columns)(path, key)


def _array_name(path: Path, key: str | None, names: Iterable[str], matrices: Iterable[str]) -> str:
    """The name of the array to read: `key`, or the only one of the matrices."""
    names, wanted = list(names), list(matrices) if key is None else [key]
    require(
        len(wanted) == 1 and wanted[0] in names,
        f"{path}: expected one matrix, or its name after two colons, not {key}; there are the arrays {listed(names)}",
    )
    return wanted[0]


def _read_npy(path: Path, key: str | None) -> MatrixAndIds:
    array = np.load(path, mmap_mode="r", allow_pickle=False)
    require(key is None and isinstance(array, np.ndarray), f"{path}: expected one array without a name")
    return array, None


def _read_npz(path: Path, key: str | None) -> MatrixAndIds:
    with np.load(path, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if key in (None, name) or name == "ids"}
        name = _array_name(path, key, archive.files, (name for name, array in arrays.items() if array.ndim == 2))
    ids = arrays["ids"].astype(str).ravel().tolist() if "ids" in arrays else None
    return arrays[name], ids


def read_safetensors(path: Path, key: str | None) -> MatrixAndIds:
    """The mapped matrix `key` of a .safetensors file, or its only one, and no ids."""
    with safe_open(path, framework="pt") as file:
        shapes = {name: file.get_slice(name).get_shape() for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
        name = _array_name(path, key, shapes, (name for name, shape in shapes.items() if len(shape) == 2))
        tensor = file.get_tensor(name)
    if tensor.dtype == torch.bfloat16:  # which numpy lacks
        return tensor, None
    array = tensor.numpy()
    array.flags.writeable = False  # as of any other mapped file
    return array, None


def _read_tensors(path: Path, key: str | None) -> MatrixAndIds:
    content = torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    if isinstance(content, dict):
        matrices = [name for name, tensor in content.items() if isinstance(tensor, Tensor) and tensor.ndim == 2]
        content, key = content[_array_name(path, key, content, matrices)], None  # the key has been used
    tensor = content.detach()
    plain = key is None and tensor.is_contiguous() and not tensor.is_nested and tensor.device.type == "cpu"
    require(plain, f"{path}: expected a plain tensor of numbers, or several by name")
    return tensor, None


def _read_columns(path: Path, key: str | None) -> MatrixAndIds:
    """One column of lists of numbers, or columns of numbers, and the column id."""
    kind = path.suffix.lower()
    if kind == ".parquet":  # only the needed columns are read, below
        schema = parquet.read_schema(path)
    elif kind == ".jsonl":
        table = json.read_json(path, read_options=json.ReadOptions(block_size=_BLOCK_BYTES))
        schema = table.schema
    else:
        table = _read_delimited(path)
        schema = table.schema
    lists, ids = _list_columns(schema), ["id"] if "id" in schema.names else []
    by_list = bool(lists) or key is not None or kind == ".jsonl"
    if by_list:
        names = [_array_name(path, key, schema.names, lists)]
    else:
        names = [field.name for field in schema if pa.types.is_floating(field.type)]
        integers = [field.name for field in schema if pa.types.is_integer(field.type) and field.name not in ids]
        integers = [name for name in integers if not name.startswith(_INDEX)]
        require(
            not integers, f"{path}: {listed(integers)} hold whole numbers; make dimensions floats, leave others out"
        )
        wrong = [name for name in names if name.lower() in _NOT_DIMENSIONS]
        require(not wrong, f"{path}: {listed(wrong)} are not dimensions; call the ids id, leave others out")
    if kind == ".parquet":
        table = parquet.read_table(path, columns=names + ids, page_checksum_verification=True)
    row_ids = table["id"].cast(pa.string()).to_pylist() if ids else None
    require(row_ids is None or all(row_ids), f"{path}: some rows have no id; expected one in each row")
    if not by_list:
        return np.column_stack([table[name].to_numpy() for name in names]), row_ids
    column = table[names[0]]
    column = column.cast(getattr(column.type, "storage_type", column.type))  # of an extension such as a tensor
    from pyarrow import compute  # 0.1 s that other formats do not need

    lengths = compute.unique(compute.list_value_length(column)).to_pylist()
    require(len(lengths) == 1, f"{path}: the lists of {names[0]} are of the lengths {listed(lengths)}; expected one")
    array = compute.list_flatten(column).to_numpy().reshape(len(column), -1)
    return array.astype(np.float32) if kind == ".jsonl" else array, row_ids


def _list_columns(schema: pa.Schema) -> list[str]:
    """The columns of lists of numbers."""
    kinds = {field.name: getattr(field.type, "storage_type", field.type) for field in schema}
    lists = {
        name: kind.value_type
        for name, kind in kinds.items()
        if str(kind).startswith(("list<", "large_list<", "fixed_size_list<"))
    }
    return [name for name, kind in lists.items() if pa.types.is_floating(kind) or pa.types.is_integer(kind)]


def _read_delimited(path: Path) -> pa.Table:
    """The numbers and ids of a .csv or .tsv, whose first line may hold names."""
    delimiter, names = header(path)
    clean = "" not in names and "\0" not in "".join(names)
    require(clean, f"{path}: expected columns of numbers, each with a name, and of ids, id")
    columns = [str(number) for number in range(len(names))]
    dimensions = [name for name in names if name != "id"]
    named_by_pandas = dimensions == columns[: len(dimensions)]  # "0", "1", ...
    has_no_header = not named_by_pandas and any(map(_is_number, names))
    require(
        not has_no_header or all(map(_is_number, names)),
        f"{path}: the first line holds names and numbers, {listed(names)}; begin with a line of names, id for ids",
    )
    kinds = {name: pa.string() if name == "id" else pa.float32() for name in (columns if has_no_header else names)}
    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=columns if has_no_header else None, block_size=_BLOCK_BYTES),
        parse_options=csv.ParseOptions(delimiter=delimiter),
        # No text stands for null, so that an empty cell is an error.
        convert_options=csv.ConvertOptions(column_types=kinds, null_values=[]),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


_READERS: dict[str, Callable[[Path, str | None], MatrixAndIds]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".safetensors": read_safetensors,
    ".pt": _read_tensors,
    ".pth": _read_tensors,
}


class Shards:
    """Files of matrices (n_i, D) of one type as one matrix (n, D), with the ids of all rows.

    key: the column of `.parquet` files. Raises InputError naming a file whose rows are not like those of the first.
    """

    def __init__(self, paths: Sequence[Path], key: str | None):
        matrices = [read_file(path, key) for path in paths]
        self._parts = [array for array, _ in matrices]
        self.ids = [row_id for _, ids in matrices for row_id in ids or ()]
        first: Any = self._parts[0]
        kinds = [(matrix_dtype(str(path), part), part.shape[1]) for path, part in zip(paths, self._parts, strict=True)]
        dtype, columns = kinds[0]
        odd = [str(path) for path, kind in zip(paths, kinds, strict=True) if kind != kinds[0]]
        require(not odd, f"{listed(odd)}: expected rows of {columns} {dtype}, as in {paths[0]}")
        self.counts = [len(part) for part in self._parts]
        self.shape, self.dtype = (sum(self.counts), columns), first.dtype.newbyteorder("=")

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice, or of row numbers (b,): (b, D)."""
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        matrix = np.empty((len(rows), self.shape[1]), self.dtype)
        ends = np.cumsum(self.counts)
        part_of_row = np.searchsorted(ends, rows, "right")
        for part in np.unique(part_of_row).tolist():
            in_part = part_of_row == part
            matrix[in_part] = self._parts[part][rows[in_part] - (ends[part] - self.counts[part])]
        return matrix


def read_metadata(paths: Sequence[Path], rows: Sequence[int]) -> tuple[list[str] | None, list[str] | None]:
    """Ids and captions of clip-retrieval's metadata, one file for each shard. rows: number of rows of each shard.

    Ids are the first column among `IDS` that has a different entry in each row.
    """
    with readable(paths[0], Exception):
        wrong = [
            str(path) for path, count in zip(paths, rows, strict=True) if parquet.read_metadata(path).num_rows != count
        ]
        require(not wrong, f"{listed(wrong)}: expected as many rows as vectors")
        names = [name for name in parquet.read_schema(paths[0]).names if name in (*IDS, LABELS)]
        table = pa.concat_tables([parquet.read_table(path, columns=names) for path in paths])
        full = {name: table[name].cast(pa.string()) for name in names if not table[name].null_count}
    ids = next((full[name] for name in IDS if name in full and len(full[name].unique()) == sum(rows)), None)
    if ids is None:
        log.warning("%s: no column of %s has a different entry in each row: no ids", paths[0].parent, listed(IDS))
    labels = full.get(LABELS)
    return None if ids is None else ids.to_pylist(), None if labels is None else labels.to_pylist()
