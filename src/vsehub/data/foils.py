"""Files of foils: images, each with a true caption and one that was made false (FOIL, Shekhar 2017)."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsehub.checks import existing, require
from vsehub.data.tables import TableFile
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, tokenize

COLUMNS = ("image", "caption", "foil")
_EXPECTED = f"a table with the columns {', '.join(COLUMNS)} and, optional, type, one pair per row"


@dataclass(frozen=True)
class Foils:
    """P pairs of a true and a false caption.

    images: (P,) row numbers of a split. captions, foils: P strings each. types: P strings, or None.
    """

    images: np.ndarray
    captions: list[str]
    foils: list[str]
    types: list[str] | None


def read_foils(path: str | Path, images: int, names: list[str] | None = None) -> Foils:
    """The pairs of a table with the columns image, caption, foil and, optional, type.

    path: .csv or .tsv (UTF-8, with a header), .jsonl or .parquet. images: the number of images in the split. names:
    their names, or None. A file gives all images by name, or all by row number counted from 0. Raises InputError naming
    the lines that lack an entry, name an unknown image, or have the same text twice.
    """
    table = TableFile(existing("foil", path, f"Give {_EXPECTED}"), _EXPECTED)
    columns = [*COLUMNS, *(["type"] if "type" in table.names() else [])]
    table.require_columns(columns, f"A pair of texts is a row of the columns {','.join(COLUMNS)},type")

    def refuse(bad: Sequence[bool], what: str, advice: str) -> None:
        if any(bad):
            table.refuse(np.array(bad), what, advice)

    entries = {
        name: ["" if entry is None else str(entry).strip() for entry in own]
        for name, own in table.entries(columns).items()
    }
    require(len(entries["image"]) > 0, f"{table.path} has no pairs; expected {_EXPECTED}")
    for name, own in entries.items():
        refuse([not entry for entry in own], f"have no {name}", "Give every pair one")
        refuse(["\0" in entry for entry in own], f"have a NUL byte in {name}", "Take it out")
    same = [caption == foil for caption, foil in zip(entries["caption"], entries["foil"], strict=True)]
    refuse(same, "have a foil that is the caption itself", "Change a word, or remove the pair")
    known = {name: row for row, name in reversed(list(enumerate(names or [])))}
    strange = "name images that the split does not have"
    if names and any(entry in known for entry in entries["image"]):
        refuse([entry not in known for entry in entries["image"]], strange, f"Its first is {names[0]!r}")
        rows = [known[entry] for entry in entries["image"]]
    else:
        rows = [int(entry) if re.fullmatch("[0-9]{1,18}", entry) else images for entry in entries["image"]]
        advice = f"It has {images}, numbered from 0" + (f", or named as {names[0]!r}" if names else ", without names")
        refuse([row >= images for row in rows], strange, advice)
    return Foils(np.array(rows), entries["caption"], entries["foil"], entries.get("type"))


def unknown_words(vocabulary: Vocabulary, texts: Iterable[str]) -> Counter[str]:
    """Words that the vocabulary lacks -> the number of texts that contain them."""
    return Counter(
        word
        for text in texts
        for word, number in set(zip(tokenize(text), vocabulary.numbers(text), strict=True))
        if number == UNKNOWN
    )
