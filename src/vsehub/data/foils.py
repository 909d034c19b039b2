"""Files of foils: for an image a caption that is true and one that is made false (FOIL, Shekhar 2017)."""

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsehub.checks import InputError, existing, fail, require
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, tokenize
from vsehub.io.text import long_fields

COLUMNS = ("image", "caption", "foil")
_NAMED = 5  # lines named in a message; the rest are counted
_SHOWN = 500  # characters of a header


@dataclass(frozen=True)
class Foils:
    """P pairs: images (P,) rows of a split, captions and foils P strings each, types P strings or None."""

    images: np.ndarray
    captions: list[str]
    foils: list[str]
    types: list[str] | None


def read_foils(path: str | Path, images: int, names: list[str] | None = None) -> Foils:
    """The pairs of a .csv (UTF-8, with a header) with the columns image, caption, foil and, if there is one, type.

    images: how many the split has. names: theirs, or None. An image is named, or given by its row counted from 0; one
    file does one or the other. Raises InputError naming the lines that lack an entry, name an image that is not there,
    or whose two captions are the same.
    """
    path = existing("foil", path, f"Give a .csv with the columns {', '.join(COLUMNS)} and, optional, type")
    lines, rows, typed = _read(path)
    columns = {name: [row[name].strip() for row in rows] for name in (*COLUMNS, *(("type",) if typed else ()))}
    for name, entries in columns.items():
        _refuse(path, lines, [not entry for entry in entries], f"have no {name}", "Give every pair one")
        _refuse(path, lines, ["\0" in entry for entry in entries], f"have a NUL byte in {name}", "Take it out")
    same = [caption == foil for caption, foil in zip(columns["caption"], columns["foil"], strict=True)]
    _refuse(path, lines, same, "have a foil that is the caption itself", "Change a word, or leave the pair out")
    places = _places(path, lines, columns["image"], images, names)
    return Foils(places, columns["caption"], columns["foil"], columns.get("type"))


def unknown_words(vocabulary: Vocabulary, texts: Iterable[str]) -> Counter[str]:
    """How many of the texts hold each word that the vocabulary lacks."""
    return Counter(
        word
        for text in texts
        for word, number in set(zip(tokenize(text), vocabulary.numbers(text), strict=True))
        if number == UNKNOWN
    )


def _read(path: Path) -> tuple[list[int], list[dict[str, str]], bool]:
    """The line numbers and entries of all records, and whether there are types."""
    lines, rows = [], []
    try:
        with long_fields(), path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = reader.fieldnames or []
            for column in COLUMNS:
                require(
                    header.count(column) == 1,
                    f"{path}:1: the header has {header.count(column)} columns {column!r}; expected one. The first line "
                    f"names the columns, separated by commas: {','.join(COLUMNS)},type. There are: "
                    f"{', '.join(header)[:_SHOWN]}",
                )
            for row in reader:
                require(
                    None not in row and None not in row.values(),
                    f"{path}:{reader.line_num}: other than {len(header)} entries; put captions with commas in quotes",
                )
                lines.append(reader.line_num)
                rows.append(row)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a UTF-8 .csv ({error}); give a table of pairs") from error
    require(len(rows) > 0, f"{path} has no pairs; expected one a line after the header")
    return lines, rows, "type" in header


def _places(path: Path, lines: list[int], entries: list[str], images: int, names: list[str] | None) -> np.ndarray:
    rows = {name: row for row, name in reversed(list(enumerate(names or [])))}
    if any(entry in rows for entry in entries):
        unknown = [entry not in rows for entry in entries]
        _refuse(path, lines, unknown, "name images that the split does not have", f"Its first is {names[0]!r}")
        return np.array([rows[entry] for entry in entries])
    numbers = [int(entry) if re.fullmatch("[0-9]{1,18}", entry) else images for entry in entries]
    advice = f"It has {images}, numbered from 0" + (f", or named as {names[0]!r}" if names else ", without names")
    _refuse(path, lines, [number >= images for number in numbers], "name images that the split does not have", advice)
    return np.array(numbers)


def _refuse(path: Path, lines: list[int], bad: list[bool], what: str, advice: str) -> None:
    """InputError naming the first lines where `bad`, if there are any."""
    found = [line for line, one in zip(lines, bad, strict=True) if one]
    if found:
        told = ", ".join(map(str, found[:_NAMED])) + (f", ... ({len(found)} in all)" if len(found) > _NAMED else "")
        fail(f"{path}: line{'s' if len(found) > 1 else ''} {told} {what}. {advice}")
