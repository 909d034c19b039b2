"""Versions of file formats: a file of another version is refused, with what to do."""

from typing import Any

from vsehub import __version__
from vsehub.checks import require


def require_version(name: str, version: Any, reads: int | str, hint: str) -> None:
    """Raise InputError unless a file's format has the version that this vsehub reads.

    name: of the file, in the message. hint: a sentence that ends the message.
    """
    require(
        type(version) is type(reads) and version == reads,
        f"{name} is of version {str(version)[:40]} of its format, and vsehub {__version__} reads version {reads}. Use "
        f"the vsehub that wrote it, or a later one. {hint}",
    )
