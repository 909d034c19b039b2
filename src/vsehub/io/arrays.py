"""Arrays and pictures in files, and errors of readers of damaged files as InputErrors that name the file."""

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from vsehub.checks import InputError, regular

if TYPE_CHECKING:
    from PIL import Image

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

    damage: the reader's own exceptions. kind: what the file should be; None: what its name ends in.
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
