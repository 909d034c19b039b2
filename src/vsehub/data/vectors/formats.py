"""Vectors in .npy, .npz and .safetensors files, memory-mapped; compressed archives are inflated once."""

import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from vsehub.checks import require
from vsehub.io.arrays import MappedRows, NpyHeader, load_member, members, opened_member, readable, scratch_array

FLOATS = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
QUANTISED = {"int8": torch.int8, "uint8": torch.uint8}
NUMBERS = FLOATS | QUANTISED
_SAFETENSORS = {
    **{"F16": "float16", "BF16": "bfloat16", "F32": "float32", "F64": "float64"},
    **{"I8": "int8", "U8": "uint8"},
}
_CHUNK_BYTES = 16 << 20


@dataclass(frozen=True)
class StoredMatrix:
    """A matrix as stored in its file.

    array: (n, D), memory-mapped, read-only; bfloat16, which numpy lacks, as int16 bits. dtype: the type of the numbers.
    ids, labels: n strings, or None. left_out: the shards of a folder that could not be read. shards: those that could,
    in order, each with its number of rows.
    """

    array: np.ndarray | MappedRows
    dtype: torch.dtype
    ids: list[str] | None = None
    labels: list[str] | None = None
    left_out: tuple[Path, ...] = ()
    shards: tuple[tuple[Path, int], ...] = ()


def checked_kind(label: str, shape: tuple[int, ...], dtype: str) -> torch.dtype:
    """The torch dtype of a matrix of vectors. Raises InputError, beginning with `label`, if it is something else."""
    require(
        dtype in NUMBERS,
        f"{label} holds {dtype}; expected one of {', '.join(NUMBERS)}. Convert it, for example: "
        "array.astype('float32')",
    )
    require(
        len(shape) == 2 and min(shape) > 0,
        f"{label} has shape {shape}; expected (rows, dim), one vector per row, with at least one of each",
    )
    return NUMBERS[dtype]


def chosen(path: Path, key: str | None, found: Mapping[str, tuple[tuple[int, ...], str]]) -> str:
    """The name of the array to read: `key`, or the only matrix of floats, or of bytes if there are no floats.

    found: the shape and dtype of each array by name.
    """
    names = ", ".join(f"{name} {shape} {dtype}" for name, (shape, dtype) in found.items()) or "none"
    if key is not None:
        require(key in found, f"{path} has no array {key!r}; arrays there: {names}")
        return key
    floats, bytes_ = (
        [name for name, (shape, dtype) in found.items() if len(shape) == 2 and dtype in kind]
        for kind in (FLOATS, QUANTISED)
    )
    matrices = floats or bytes_
    require(
        len(matrices) == 1,
        f"{path} has {len(matrices)} matrices of floats; expected one, or its name after two colons, as in "
        f"{path.name}::{(matrices or ['NAME'])[0]}. Arrays there: {names}",
    )
    return matrices[0]


def read_npy(path: Path, key: str | None) -> StoredMatrix:
    """The mapped array of a .npy file. key: must be None. Raises InputError if it is damaged or holds no matrix."""
    require(key is None, f"{path} is one array without a name; remove '::{key}'")
    with readable(path), path.open("rb") as file:
        header = NpyHeader.read(file)
        dtype = checked_kind(str(path), header.shape, header.dtype.name)
        return StoredMatrix(header.mapped(path, file.tell(), path.stat().st_size - file.tell()), dtype)


def read_npz(path: Path, key: str | None) -> StoredMatrix:
    """The matrix `key` of a .npz file, or its only one, and the ids of its array `ids`.

    Uncompressed arrays are mapped. Raises InputError if the file is damaged, or holds no such matrix or ids.
    """
    with readable(path), zipfile.ZipFile(path) as archive:
        arrays = members(archive)
        found = {}
        for name, info in arrays.items():
            with archive.open(info) as member:
                header = NpyHeader.read(member)
                found[name] = (header.shape, header.dtype.name)
        name = chosen(path, key, found)
        dtype = checked_kind(f"{path}::{name}", *found[name])
        array = _npz_member(path, archive, arrays[name])
        ids = None
        if "ids" in arrays and name != "ids":
            shape, kind = found["ids"]
            require(
                len(shape) == 1 and re.match("str|bytes|u?int", kind) is not None,
                f"{path}::ids is {kind} {shape}; expected one string or whole number per row: ids.astype(str)",
            )
            ids = _as_strings(path, load_member(path, archive, arrays["ids"]))
        return StoredMatrix(array, dtype, ids)


def _npz_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """The array of an archive's member: mapped if it is not compressed, else unpacked to a scratch file."""
    with opened_member(path, archive, info) as (member, header):
        if info.compress_type == zipfile.ZIP_STORED:
            with path.open("rb") as file:
                # A member's bytes follow its local header: 30 bytes, the last four the lengths of its name and extras.
                file.seek(info.header_offset + 26)
                lengths = np.frombuffer(file.read(4), "<u2")
            begin = info.header_offset + 30 + int(lengths.sum())
            return header.mapped(path, begin + member.tell(), info.compress_size - member.tell())
        shape = header.shape[::-1] if header.fortran else header.shape
        array = scratch_array(shape, header.dtype, f"the numbers of {path}")
        left = array.reshape(-1).view(np.uint8)
        while len(left):
            piece = member.read(min(len(left), _CHUNK_BYTES))
            require(len(piece) > 0, f"{path} is cut short: {len(left)} bytes of {info.filename} are missing")
            left[: len(piece)] = np.frombuffer(piece, np.uint8)
            left = left[len(piece) :]
        return array.T if header.fortran else array


def _as_strings(path: Path, array: np.ndarray) -> list[str]:
    if array.dtype.kind == "U":
        # Halves of surrogate pairs, and numbers outside of Unicode, which Python rejects.
        codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).view(np.uint32)
        require(
            not (((codes >= 0xD800) & (codes <= 0xDFFF)) | (codes > 0x10FFFF)).any(),
            f"{path}::ids holds numbers that are not characters. Copy, download or write it again",
        )
    strings: list[str] = (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(str)).tolist()
    return strings


def read_safetensors(path: Path, key: str | None) -> StoredMatrix:
    """The matrix `key` of a .safetensors file, or its only one, mapped. Raises InputError if the file is damaged."""
    from safetensors import SafetensorError, safe_open

    with readable(path, SafetensorError):
        # Opened only for its checks: its torch tensors are private maps, which fail for files larger than the memory.
        with safe_open(path, framework="np") as file:
            slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118 (it is not a mapping)
            found = {
                name: (tuple(one.get_shape()), _SAFETENSORS.get(one.get_dtype(), one.get_dtype()))
                for name, one in slices.items()
            }
        name = chosen(path, key, found)
        dtype = checked_kind(f"{path}::{name}", *found[name])
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            begin = 8 + length + json.loads(file.read(length))[name]["data_offsets"][0]
        bits = np.dtype(np.int16 if dtype == torch.bfloat16 else found[name][1]).newbyteorder("<")
        return StoredMatrix(np.memmap(path, bits, "r", begin, found[name][0]), dtype)
