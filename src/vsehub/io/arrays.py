"""Arrays and pictures in files; errors of readers, bad rows and hashes of rows."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.lib.format import header_data_from_array_1_0, write_array_header_1_0

from vsehub.checks import InputError, regular, require
from vsehub.io.files import atomic

NAMED = 5  # rows named in a message; the rest are counted
LONGEST_NAME = 200  # characters of a name in a message
# Formats of pictures that are opened: they start no program (as EPS does) and decode within bounds.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
# Exceptions of readers for damaged files. RecursionError and NotImplementedError are RuntimeErrors, UnicodeError is a
# ValueError.
DAMAGE: tuple[type[Exception], ...] = (
    ValueError,
    EOFError,
    OSError,
    RuntimeError,
    OverflowError,
    zipfile.BadZipFile,
    zlib.error,
)


def shortened(error: Exception | str) -> str:
    """The message of an error on one line, shortened, since a message may repeat many of the file's bytes."""
    return " ".join(str(error).split())[:300]


@contextmanager
def readable(path: Path, *damage: type[Exception], kind: str | None = None) -> Iterator[None]:
    """Turn a reader's error about a damaged file into an InputError.

    damage: the reader's own exceptions. kind: expected kind of file; None: the suffix of its name.
    """
    try:
        regular(path)
        yield
    except InputError:
        raise
    except (*DAMAGE, *damage) as error:
        advice = "cut short, damaged or of another format: copy, download or write it again"
        if isinstance(error, UnicodeError):
            advice = "not UTF-8: save it as UTF-8, or copy it again if it is damaged"
        said = shortened(error) or type(error).__name__
        raise InputError(f"{path} cannot be read as {kind or path.suffix} ({said}). The file is {advice}") from error


def listed(names: Sequence[object] | np.ndarray, most: int = NAMED) -> str:
    """The first `most` names, and the total number if there are more.

    Names from a damaged file may be of any length: each is cut after `LONGEST_NAME` characters.
    """
    shown = (name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]} ..." for name in map(str, names[:most]))
    return ", ".join(shown) + (f", ... ({len(names):,} in all)" if len(names) > most else "")


def refuse_unusable(what: str, sizes: np.ndarray, advice: str) -> None:
    """Raise InputError naming the rows that hold NaN, infinite values or only zeros.

    what: begins the message, before the rows; advice: ends it. sizes (n,): the norm or the largest magnitude of each
    row, NaN if the row holds a NaN.
    """
    rows_of = {
        "NaN": np.flatnonzero(np.isnan(sizes)),
        "infinite values": np.flatnonzero(np.isinf(sizes)),
        "only zeros": np.flatnonzero(sizes == 0),
    }
    faults = [
        f"row {rows[0]} holds {fault}" if len(rows) == 1 else f"rows {listed(rows)} hold {fault}"
        for fault, rows in rows_of.items()
        if len(rows)
    ]
    require(not faults, f"{what} {'; '.join(faults)}. {advice}")


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """64-bit hashes (n,) of the bytes of rows (n, ...). A million rows collide with probability 1 in 37 million."""
    rows = np.ascontiguousarray(rows)
    digests = (int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows)
    return np.fromiter(digests, np.uint64, len(rows))


def write_array(path: Path, rows: int, blocks: Iterable[np.ndarray]) -> tuple[int, ...]:
    """Write blocks (b, ...) of `rows` rows in all, of one type, as an .npy; returns its shape.

    The file is written without a memory map: on a full disk, writing to a map kills the process.
    """
    shape: tuple[int, ...] = (rows, 0)
    with atomic(path) as file:
        for number, block in enumerate(blocks):
            if number == 0:
                shape = (rows, *block.shape[1:])
                write_array_header_1_0(file, header_data_from_array_1_0(block) | {"shape": shape})
            file.write(block.tobytes())
    return shape
