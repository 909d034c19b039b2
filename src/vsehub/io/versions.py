"""Versions of file formats: a file of another version is refused, with what to do."""

import re
from typing import Any

from vsehub import __version__
from vsehub.checks import fail


def require_version(name: str, version: Any, reads: int | str, hint: str, wrote: Any = None) -> None:
    """Raise InputError unless a file's format has the version that this vsehub reads.

    name: of the file, in the message. hint: a sentence that ends the message. wrote: the version of the vsehub that
    wrote the file, as far as the file says it.
    """
    if type(version) is type(reads) and version == reads:
        return
    told = str(version)[:40]
    known = isinstance(wrote, str) and re.fullmatch(r"\d{1,4}(\.\d{1,4}){1,3}(\.dev\d{1,4})?", wrote) is not None
    by = f"vsehub {wrote}, which wrote it" if known else "the vsehub that wrote it"
    later = told.isdecimal() and int(told) > int(reads)
    how = f"Use {by}, or a later one: pip install --upgrade vsehub" if later else f"Use {by}"
    fail(f"{name} is of version {told} of its format, and vsehub {__version__} reads version {reads}. {how}. {hint}")
