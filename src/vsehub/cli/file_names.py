"""File names on the command line of `rerank` and `diagnose`, whatever characters they have."""

import re
from collections.abc import Sequence

from vsehub.cli.free_text import with_quotes

FILES = (
    "queries",
    "items",
    "reference",
    "truth",
    *(f"{side}_{what}" for side in ("query", "item") for what in ("ids", "labels")),
    "item_images",
)
_SIMPLE = re.compile(r"[\w./:@+-]*")


def with_quoted_files(arguments: Sequence[str]) -> list[str]:
    """The arguments, file names quoted where Hydra would read more; not under -m, where a comma is a sweep."""
    if {"-m", "--multirun"} & set(arguments):
        return list(arguments)
    return [_quoted(argument, *argument.partition("=")[::2]) for argument in arguments]


def _quoted(argument: str, key: str, value: str) -> str:
    return with_quotes([argument], key)[0] if key in FILES and not _SIMPLE.fullmatch(value) else argument
