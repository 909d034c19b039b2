"""Lines of UTF-8 text files, read strictly: damage is named by file, line and byte."""

import codecs
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
