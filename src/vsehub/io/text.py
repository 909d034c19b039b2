"""Strict reading of text files: UTF-8 lines, CSV fields of any length, and paths that stay inside a folder."""

import codecs
import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsehub.checks import InputError, require


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a UTF-8 file without their ends, which are `\\n` or `\\r\\n`, nothing else.

    The last newline may be missing, and the file may begin with a byte order mark. what: what a line is ("caption"),
    for messages. Raises InputError for a folder, if a line is blank or not UTF-8, or if there are no lines.
    """
    require(path.is_file(), f"{path} is a folder; give a UTF-8 text file with one {what} a line")
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise InputError(
            f"{path}:{line}: byte 0x{data[error.start]:02x} at place {column} of the line is not UTF-8. "
            "Save the file as UTF-8, for example: iconv -f LATIN1 -t UTF-8"
        ) from error
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")] if text else []
    require(len(lines) > 0, f"{path} is empty; expected one {what} per line")
    blank = [number for number, line in enumerate(lines, 1) if not line.strip()]
    if blank:
        raise InputError(
            f"{path}:{blank[0]}: the line is empty ({len(blank)} such of {len(lines)} lines); expected a {what} on "
            "every line. Write the missing text, or remove the line and what belongs to it in the other files"
        )
    return lines


@contextmanager
def long_fields() -> Iterator[None]:
    """Let the csv module read fields of any length within the block; its limit is restored afterwards."""
    before = csv.field_size_limit(2**31 - 1)  # the largest number that the module takes on every platform
    try:
        yield
    finally:
        csv.field_size_limit(before)


def stays_inside(name: str) -> bool:
    """Whether a path taken from a data file stays inside the folder that it is joined to.

    Absolute paths, paths with a drive and paths with `..` do not. A symbolic link inside the folder may point
    elsewhere, since the owner of the folder put it there.
    """
    if ".." not in name and not name.startswith("/") and "\\" not in name and ":" not in name:
        return True  # nearly all names; a Path for each of a million takes seconds
    path = Path(name)
    return not (path.is_absolute() or path.drive or path.root or ".." in path.parts)
