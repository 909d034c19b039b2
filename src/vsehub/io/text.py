"""Text files read strictly: UTF-8 lines, CSV fields of any length, and paths that stay inside a folder."""

import codecs
import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsehub.checks import InputError, require


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a UTF-8 file without their ends; only `\\n` ends a line, a `\\r` before it belongs to the end.

    A missing newline after the last line and a byte order mark are fine. what: what a line is ("caption"), for the
    messages. InputError for a folder, and where a line is blank or not UTF-8, or there are none.
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
    require(len(lines) > 0, f"{path} is empty; expected one {what} a line")
    blank = [number for number, line in enumerate(lines, 1) if not line.strip()]
    if blank:
        raise InputError(
            f"{path}:{blank[0]}: the line is empty ({len(blank)} such of {len(lines)} lines); expected a {what} on "
            "every line. Write the missing text, or take the line out with what belongs to it in the other files"
        )
    return lines


_MOST = 2**31 - 1  # what the module's own counter holds on every platform


@contextmanager
def long_fields() -> Iterator[None]:
    """Within the block the csv module reads fields of any length; the limit of the process is restored after it."""
    before = csv.field_size_limit(_MOST)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def stays_inside(name: str) -> bool:
    """Whether a path taken from a data file stays inside the folder that it is joined to.

    Absolute paths, paths with a drive and paths with `..` do not. A symbolic link inside the folder may point
    elsewhere: whoever gave the folder has put it there.
    """
    if ".." not in name and not name.startswith("/") and "\\" not in name and ":" not in name:
        return True  # nearly all names: a million of them are looked at in a moment
    path = Path(name)
    return not (path.is_absolute() or path.drive or path.root or ".." in path.parts)
