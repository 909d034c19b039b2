"""Arrays and pictures in files; errors of readers, bad rows and equal rows, for messages that name them."""

import hashlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import numpy as np

from vsehub.checks import InputError, regular, require

if TYPE_CHECKING:
    from PIL import Image

NAMED = 5  # rows named in a message; the rest are counted
LONGEST_NAME = 200  # characters of a name in a message
# Formats of pictures that start no program (as EPS does) and decode within bounds.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")
# Exceptions of readers for damaged files. RecursionError and NotImplementedError are RuntimeErrors, UnicodeError is a
# ValueError.
DAMAGE: tuple[type[Exception], ...] = (
    *(ValueError, EOFError, OSError, RuntimeError, OverflowError),
    *(zipfile.BadZipFile, zlib.error),
)


def shortened(error: Exception | str) -> str:
    """The message of an error on one line, shortened, since a message may repeat many of the file's bytes."""
    return " ".join(str(error).split())[:300]


def open_picture(file: Path | BinaryIO) -> "Image.Image":
    """The picture of a file, not decoded yet. Raises UnidentifiedImageError for a format outside `FORMATS`."""
    from PIL import Image

    return Image.open(file, formats=FORMATS)


@contextmanager
def readable(path: Path, *damage: type[Exception], kind: str | None = None) -> Iterator[None]:
    """Turn a reader's error about a damaged file into an InputError.

    damage: the reader's own exceptions. kind: expected kind of file; None: as its name ends.
    """
    caught = DAMAGE + damage
    try:
        regular(path)
        yield
    except InputError:
        raise
    except caught as error:
        raise InputError(
            f"{path} cannot be read as {kind or path.suffix} ({shortened(error) or type(error).__name__}). The file is "
            "cut short, damaged or of another format: copy, download or write it again"
        ) from error


def listed(names: Sequence[object], count: int | None = None, most: int = NAMED) -> str:
    """The first `most` names, and the total number if there are more. count: that number, by default len(names).

    Names from a damaged file may be of any length: each is cut after `LONGEST_NAME` characters.
    """
    count = len(names) if count is None else count
    shown = (name if len(name) <= LONGEST_NAME else f"{name[:LONGEST_NAME]} ..." for name in map(str, names[:most]))
    return ", ".join(shown) + (f", ... ({count:,} in all)" if count > most else "")


class RowErrors:
    """Bad rows: all of them counted, the numbers of the first few kept for a message."""

    def __init__(self) -> None:
        self.count = 0
        self.named: list[int] = []

    def add(self, rows: int | np.ndarray, mask: np.ndarray) -> None:
        """Add the rows of a block where `mask` (b,) is true. rows: the numbers (b,) of its rows, or its first row."""
        found = np.flatnonzero(mask)
        self.count += len(found)
        first = found[: NAMED - len(self.named)]
        self.named += (first + rows if isinstance(rows, int) else rows[first]).tolist()

    def __str__(self) -> str:
        return listed(self.named, self.count)


class UnusableRows:
    """Rows that contain NaN, infinite values or only zeros, collected while all rows are read once."""

    def __init__(self) -> None:
        self._found = {what: RowErrors() for what in ("NaN", "infinite values", "only zeros")}

    def add(self, rows: int | np.ndarray, sizes: np.ndarray) -> None:
        """Check a block. sizes (b,): the norm or the largest magnitude of each row, NaN if the row holds a NaN.

        rows: as in `RowErrors.add`.
        """
        for found, mask in zip(self._found.values(), (np.isnan(sizes), np.isinf(sizes), sizes == 0), strict=True):
            found.add(rows, mask)

    def refuse(self, what: str, advice: str) -> None:
        """Raise InputError if there are any. what: begins the message, before the rows; advice: ends it."""
        found = [
            f"row {rows} holds {fault}" if rows.count == 1 else f"rows {rows} hold {fault}"
            for fault, rows in self._found.items()
            if rows.count
        ]
        require(not found, f"{what} {'; '.join(found)}. {advice}")


def row_hashes(rows: np.ndarray) -> np.ndarray:
    """64-bit hashes (n,) of the bytes of rows (n, ...). A million rows collide with probability 1 in 37 million."""
    rows = np.ascontiguousarray(rows)
    digests = (int.from_bytes(hashlib.blake2b(row.data, digest_size=8).digest(), "little") for row in rows)
    return np.fromiter(digests, np.uint64, len(rows))
