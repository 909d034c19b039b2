"""Strict reading of text files: UTF-8 lines, CSV fields of any length, and paths that stay inside a folder."""

import csv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vsehub.checks import InputError, regular, require


def read_lines(path: Path, what: str) -> list[str]:
    """The lines of a UTF-8 file without their ends, which are `\\n` or `\\r\\n`, nothing else.

    The last newline may be missing, and the file may begin with a byte order mark. what: what a line is ("caption"),
    for messages. Raises InputError for a folder, if a line is blank or not UTF-8, or if there are no lines.
    """
    data = regular(path).read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: not UTF-8 ({error}). Save it as UTF-8: iconv -f LATIN1 -t UTF-8") from error
    require(text != "", f"{path} is empty; expected one {what} per line")
    lines = [line.removesuffix("\r") for line in text.removesuffix("\n").split("\n")]
    blank = next((number for number, line in enumerate(lines, 1) if not line.strip()), None)
    require(
        blank is None,
        f"{path}:{blank}: the line is empty; expected a {what} on every line. Write the missing text, or remove the "
        "line and what belongs to it in the other files",
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
