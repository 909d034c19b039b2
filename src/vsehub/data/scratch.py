"""Arrays in unnamed files that vanish with the process: room for what need not be in memory."""

import math
import os
import tempfile
from types import TracebackType

import numpy as np

from vsehub.checks import InputError


class ScratchRows:
    """Rows that are written one block after another into an unnamed file, and then read as one array.

    For rows that are found while they are decoded: nothing is reserved for a number of rows that a file only claims.
    what: what the file is to hold, for the message. A context; InputError where the temporary folder lacks the room.
    """

    def __init__(self, dtype: np.dtype, what: str):
        self._dtype, self._what, self._bytes, self.rows = np.dtype(dtype), what, 0, 0

    def __enter__(self) -> "ScratchRows":
        # Without a buffer: a full disk shows where it is written to.
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
        """All rows (n, columns), writable; for at least one."""
        return np.memmap(self._file, self._dtype, "r+", shape=(self.rows, columns))


def scratch_array(shape: tuple[int, ...], dtype: np.dtype, what: str) -> np.ndarray:
    """A writable array in an unnamed file of the temporary folder ($TMPDIR), gone when nothing refers to it any more.

    what: what it is to hold, for the message. InputError where the folder lacks the room.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(prefix="vsehub-") as file:
        try:
            # Reserved now, where the system can: a disk that fills up under a mapped page kills the process unheard.
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)
            else:
                file.truncate(size)
        except OSError as error:
            raise _no_room(what, size, error) from error
        return np.memmap(file, dtype, "r+", shape=shape)


def _no_room(what: str, size: int, error: OSError) -> InputError:
    return InputError(
        f"{what} are unpacked into the temporary folder {tempfile.gettempdir()}, which does not take "
        f"{size / 1e9:.2g} GB ({error.strerror}). Free room there, set TMPDIR to a folder on another disk, or "
        "save the vectors as .npy, which is read where it lies"
    )
