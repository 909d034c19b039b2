"""Arrays in unnamed files that vanish with the process: room for what need not be in memory."""

import math
import os
import tempfile

import numpy as np

from vsehub.checks import InputError


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
            raise InputError(
                f"{what} are unpacked into the temporary folder {tempfile.gettempdir()}, which does not take "
                f"{size / 1e9:.2g} GB ({error.strerror}). Free room there, set TMPDIR to a folder on another disk, or "
                "save the vectors as .npy, which is read where it lies"
            ) from error
        return np.memmap(file, dtype, "r+", shape=shape)
