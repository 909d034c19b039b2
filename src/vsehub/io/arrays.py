"""Arrays in .npy and .npz files, read safely, and scratch arrays that vanish with the process."""

import io
import math
import os
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal

import numpy as np

from vsehub.checks import InputError, regular, require

# Exceptions of readers for damaged files. RecursionError and NotImplementedError are RuntimeErrors, UnicodeError is a
# ValueError.
DAMAGE: tuple[type[Exception], ...] = (
    *(ValueError, EOFError, OSError, RuntimeError, OverflowError),
    *(zipfile.BadZipFile, zlib.error),
)
_LONGEST_MESSAGE = 300  # characters of a library's message
_STAY_MAPPED = 32  # mapped files of a folder: four folders then take half of the 256 file handles of macOS
_DEFLATES = 1032  # most bytes that one deflated byte can expand to
_LONGEST_HEADER = 10_000  # bytes of a .npy file's header; numpy itself parses no longer ones
# Version of the format -> the reader of a header, and the bytes of the header's length before it.
_HEADERS = {
    (1, 0): (np.lib.format.read_array_header_1_0, 2),
    (2, 0): (np.lib.format.read_array_header_2_0, 4),
}
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


def shortened(error: Exception | str) -> str:
    """The message of an error on one line, shortened, since a message may repeat many of the file's bytes."""
    message = " ".join(str(error).split())
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} ..."


@contextmanager
def readable(path: Path, *damage: type[Exception], kind: str | None = None) -> Iterator[None]:
    """Turn a reader's error about a damaged file into an InputError.

    damage: the reader's own exceptions. kind: what the file should be; None: what its name ends in.
    """
    caught = DAMAGE + damage
    regular(path)
    try:
        yield
    except InputError:
        raise
    except caught as error:
        raise InputError(
            f"{path} cannot be read as {kind or path.suffix} ({shortened(error)}). The file is cut short, damaged or "
            "of another format: copy, download or write it again"
        ) from error


@dataclass(frozen=True)
class NpyHeader:
    """The header of a .npy file.

    shape, dtype: of the array. fortran: whether it is stored column by column.
    """

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype

    @classmethod
    def read(cls, file: IO[bytes]) -> "NpyHeader":
        """Read the header, leaving the file at the first number. Raises ValueError if there is no header."""
        version = np.lib.format.read_magic(file)
        reader, width = _HEADERS.get(version, (None, 0))
        if reader is None:
            raise ValueError(f"version {version[0]}.{version[1]} of the format holds records, no plain numbers")
        size = file.read(width)
        length = int.from_bytes(size, "little")
        if length > _LONGEST_HEADER:
            raise ValueError(f"the header has {length} bytes; of plain numbers it has at most {_LONGEST_HEADER}")
        try:
            # numpy parses a Python literal, which runs no code; a damaged one can raise almost anything.
            header = cls(*reader(io.BytesIO(size + file.read(length))))
        except Exception as error:
            raise ValueError("the header does not describe an array of plain numbers") from error
        if bool in map(type, header.shape) or min(header.shape, default=0) < 0 or header.dtype.itemsize == 0:
            raise ValueError(f"the header gives {header.dtype} {header.shape}, no plain numbers or strings")
        return header

    @property
    def bytes(self) -> int:
        """The size of all numbers."""
        return math.prod(self.shape) * self.dtype.itemsize

    def require_room(self, path: Path, length: int) -> None:
        """Raise InputError if `length` bytes of `path` are too few for the numbers, ValueError if it holds objects."""
        if self.dtype.hasobject:
            raise ValueError("it holds Python objects, which are not read")
        require(
            length >= self.bytes,
            f"{path} is cut short: {self.shape} {self.dtype.name} numbers take {self.bytes} bytes, {length} are there. "
            "Copy, download or write it again",
        )

    def mapped(self, path: Path, begin: int, length: int) -> np.ndarray:
        """The array in the `length` bytes of `path` from `begin` on. Raises InputError if they are too few."""
        self.require_room(path, length)
        return np.memmap(path, self.dtype, "r", begin, self.shape, "F" if self.fortran else "C")


class MappedRows:
    """Matrices (n_i, D) of one type in files, added one by one and indexed by rows as one matrix (n, D).

    Only the first files stay mapped, the others are mapped for each access: a map takes one of the process's file
    handles, and there may be thousands of files.
    """

    def __init__(self) -> None:
        self._parts: list[np.ndarray | _Place] = []
        self._ends: list[int] = []
        self._columns, self.dtype = 0, np.dtype(np.float32)

    def add(self, part: np.memmap) -> None:
        """Add the rows (n_i, D) of a mapped file."""
        self._columns, self.dtype = part.shape[1], part.dtype.newbyteorder("=")
        self._parts.append(part if len(self._parts) < _STAY_MAPPED else _Place.of(part))
        self._ends.append(len(self) + len(part))

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self), self._columns

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __getitem__(self, rows: slice | np.ndarray) -> np.ndarray:
        """The rows of a slice without a step, or of row numbers (b,) from 0 up: (b, D), which may be a view."""
        if isinstance(rows, slice):
            return self._between(*rows.indices(len(self))[:2])
        found = np.empty((len(rows), self._columns), self.dtype)
        owners = np.searchsorted(self._ends, rows, "right")
        for number in np.unique(owners).tolist():
            chosen = owners == number
            found[chosen] = self._mapped(number)[rows[chosen] - self._begin(number)]
        return found

    def _between(self, start: int, stop: int) -> np.ndarray:
        first, last = np.searchsorted(self._ends, [start, stop - 1], "right").tolist()
        if first == last:
            return self._mapped(first)[start - self._begin(first) : stop - self._begin(first)]
        found = np.empty((max(0, stop - start), self._columns), self.dtype)
        for number in range(first, last + 1):  # closes each file before the next one is mapped
            here = slice(max(start, self._begin(number)), min(stop, self._ends[number]))
            begin = self._begin(number)
            found[here.start - start : here.stop - start] = self._mapped(number)[here.start - begin : here.stop - begin]
        return found

    def _begin(self, number: int) -> int:
        """The first row of a part."""
        return self._ends[number - 1] if number else 0

    def _mapped(self, number: int) -> np.ndarray:
        part = self._parts[number]
        return part.mapped() if isinstance(part, _Place) else part


@dataclass(frozen=True)
class _Place:
    """The position and layout of the matrix in a mapped file."""

    path: Path
    dtype: np.dtype
    offset: int
    shape: tuple[int, ...]
    order: Literal["C", "F"]

    @classmethod
    def of(cls, part: np.memmap) -> "_Place":
        order: Literal["C", "F"] = "C" if part.flags.c_contiguous else "F"
        return cls(Path(str(part.filename)), part.dtype, part.offset, part.shape, order)

    def mapped(self) -> np.ndarray:
        try:
            return np.memmap(self.path, self.dtype, "r", self.offset, self.shape, self.order)
        except (OSError, ValueError) as error:
            raise InputError(
                f"{self.path} was changed or removed while it was read ({shortened(error)}). Run the command again "
                "when no other program writes to it"
            ) from error


def load_array(path: Path) -> np.ndarray:
    """The array of a .npy file, in memory. Raises InputError or ValueError if it is damaged or holds objects."""
    with regular(path).open("rb") as file:
        header = NpyHeader.read(file)
        header.require_room(path, path.stat().st_size - file.tell())
        file.seek(0)
        return np.lib.format.read_array(file, allow_pickle=False)


def load_archive(path: Path) -> dict[str, np.ndarray]:
    """All arrays of a .npz, by name, in memory. InputError or one of `DAMAGE` where the file is damaged."""
    with zipfile.ZipFile(regular(path)) as archive:
        return {name: load_member(path, archive, info) for name, info in members(archive).items()}


def members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """The arrays of an archive, by name."""
    return {info.filename[:-4]: info for info in archive.infolist() if info.filename.endswith(".npy")}


@contextmanager
def opened_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Iterator[tuple[IO[bytes], NpyHeader]]:
    """A member, opened at its first number, and its header. Raises InputError if the header claims too many numbers."""
    with archive.open(info) as member:
        header = NpyHeader.read(member)
        deflated = info.compress_type == zipfile.ZIP_DEFLATED
        most = info.compress_size * _DEFLATES if deflated else info.compress_size
        require(
            info.compress_type in _METHODS and info.compress_size <= path.stat().st_size,
            f"{path}: {info.filename} is compressed as numpy does not write it, or cut short. Write it again by "
            "np.savez or np.savez_compressed",
        )
        header.require_room(path, min(info.file_size, most) - member.tell())
        yield member, header


def load_member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    """The array of a member, in memory."""
    with opened_member(path, archive, info):
        pass
    with archive.open(info) as member:
        return np.lib.format.read_array(member, allow_pickle=False)


class ScratchRows:
    """Rows that are written block by block to an unnamed file, and then read as one array. A context manager.

    Unlike `scratch_array` it does not reserve space for a number of rows that a damaged file may only claim. what: the
    content, for the message. Raises InputError if the temporary folder has too little space.
    """

    def __init__(self, dtype: np.dtype, what: str):
        self._dtype, self._what, self._bytes, self.rows = np.dtype(dtype), what, 0, 0

    def __enter__(self) -> "ScratchRows":
        # Without a buffer, so that a full disk raises on writing.
        self._file = tempfile.TemporaryFile(prefix="vsehub-", buffering=0)
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    def add(self, block: np.ndarray) -> None:
        """Add rows (b, D)."""
        left = np.ascontiguousarray(block, self._dtype).reshape(-1).view(np.uint8).data
        self._bytes += len(left)
        try:
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            raise _no_room(self._what, self._bytes, error) from error
        self.rows += len(block)

    def array(self, columns: int) -> np.ndarray:
        """All rows (n, columns), writable; there must be at least one."""
        return np.memmap(self._file, self._dtype, "r+", shape=(self.rows, columns))


def scratch_array(shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
    """A writable array in an unnamed file of the temporary folder ($TMPDIR), removed when nothing refers to it.

    what: the content, for the message. Raises InputError if the folder has too little space.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="vsehub-") as file:
        try:
            # Reserve the space now if the system can: a disk that fills up while a mapped page is written kills the
            # process.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise _no_room(what, size, error) from error
        return np.memmap(file, dtype, "r+", shape=shape)


def _no_room(what: str, size: int, error: OSError) -> InputError:
    return InputError(
        f"{what} are unpacked into the temporary folder {tempfile.gettempdir()}, which has no room for "
        f"{size / 1e9:.2g} GB ({error.strerror}). Free room there, set TMPDIR to a folder on another disk, or "
        "save the vectors as .npy, which needs no unpacking"
    )
