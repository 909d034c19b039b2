"""Vectors in .npy and .npz files, mapped where they lie; compressed archives are inflated once."""

import re
import zipfile
from pathlib import Path

import numpy as np

from vsehub.checks import require
from vsehub.data.npy import NpyHeader, load_member, members, opened_member
from vsehub.data.scratch import scratch_array
from vsehub.data.stored import Stored, checked_kind, chosen, readable

_CHUNK_BYTES = 16 << 20


def read_npy(path: Path, key: str | None) -> Stored:
    require(key is None, f"{path} is one array without a name; take '::{key}' away")
    with readable(path), path.open("rb") as file:
        header = NpyHeader.read(file)
        dtype = checked_kind(str(path), header.shape, header.dtype.name)
        return Stored(header.mapped(path, file.tell(), path.stat().st_size - file.tell()), dtype)


def read_npz(path: Path, key: str | None) -> Stored:
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
                f"{path}::ids is {kind} {shape}; expected one string or whole number a row: ids.astype(str)",
            )
            ids = _as_strings(path, load_member(path, archive, arrays["ids"]))
        return Stored(array, dtype, ids)


def _npz_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """The array of an archive's member: mapped where it lies uncompressed, inflated to a scratch file once else."""
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
            count = member.readinto(left[:_CHUNK_BYTES].data)
            require(count > 0, f"{path} is cut short: {len(left)} bytes of {info.filename} are missing")
            left = left[count:]
        return array.T if header.fortran else array


def _as_strings(path: Path, array: np.ndarray) -> list[str]:
    if array.dtype.kind == "U":
        # Numbers that are no characters: halves of surrogate pairs, and those beyond Unicode, which Python rejects.
        codes = np.ascontiguousarray(array.astype(array.dtype.newbyteorder("="))).view(np.uint32)
        require(
            not (((codes >= 0xD800) & (codes <= 0xDFFF)) | (codes > 0x10FFFF)).any(),
            f"{path}::ids holds numbers that are no characters. Copy, download or write it again",
        )
    return (np.char.decode(array, "utf-8") if array.dtype.kind == "S" else array.astype(str)).tolist()
