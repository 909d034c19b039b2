"""Files of foils: images, each with a true caption and one that was made false (FOIL, Shekhar 2017)."""

import csv
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from vsehub.checks import InputError, existing, require
from vsehub.data.text.vocabulary import UNKNOWN, Vocabulary, tokenize
from vsehub.io.rows import RowErrors
from vsehub.io.text import long_fields

COLUMNS = ("image", "caption", "foil")
_SHOWN = 500  # characters of a header


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
    """The pairs of a .csv (UTF-8, with a header) with the columns image, caption, foil and, optional, type.

    images: the number of images in the split. names: their names, or None. A file gives all images by name, or all by
    row number counted from 0. Raises InputError naming the lines that lack an entry, name an unknown image, or have the
    same text twice.
    """
    path = existing("foil", path, f"Give a .csv with the columns {', '.join(COLUMNS)} and, optional, type")
    lines, rows, typed = _read(path)
    columns = {name: [row[name].strip() for row in rows] for name in (*COLUMNS, *(("type",) if typed else ()))}
    for name, entries in columns.items():
        _refuse(path, lines, [not entry for entry in entries], f"have no {name}", "Give every pair one")
        _refuse(path, lines, ["\0" in entry for entry in entries], f"have a NUL byte in {name}", "Take it out")
    same = [caption == foil for caption, foil in zip(columns["caption"], columns["foil"], strict=True)]
    _refuse(path, lines, same, "have a foil that is the caption itself", "Change a word, or remove the pair")
    places = _places(path, lines, columns["image"], images, names)
    return Foils(places, columns["caption"], columns["foil"], columns.get("type"))


def unknown_words(vocabulary: Vocabulary, texts: Iterable[str]) -> Counter[str]:
    """Words that the vocabulary lacks -> the number of texts that contain them."""
    return Counter(
        word
        for text in texts
        for word, number in set(zip(tokenize(text), vocabulary.numbers(text), strict=True))
        if number == UNKNOWN
    )


def _read(path: Path) -> tuple[list[int], list[dict[str, str]], bool]:
    """The line numbers and entries of all records, and whether there are types.

    Uses the csv module: Arrow, which reads tables of pairs, takes the rest of a file after an open quote as one entry.
    """
    lines: list[int] = []
    rows: list[dict[str, str]] = []
    try:
        with long_fields(), path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file, strict=True)
            header = reader.fieldnames or []
            for column in COLUMNS:
                count = header.count(column)
                require(
                    count == 1,
                    f"{path}:1: the header has {f'{count} columns' if count else 'no column'} {column!r}; expected one."
                    f" The first line names the columns, separated by commas: {','.join(COLUMNS)},type. There are: "
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
    require(len(rows) > 0, f"{path} has no pairs; expected one per line after the header")
    return lines, rows, "type" in header


def _places(path: Path, lines: list[int], entries: list[str], images: int, names: list[str] | None) -> np.ndarray:
    rows = {name: row for row, name in reversed(list(enumerate(names or [])))}
    if names and any(entry in rows for entry in entries):
        unknown = [entry not in rows for entry in entries]
        _refuse(path, lines, unknown, "name images that the split does not have", f"Its first is {names[0]!r}")
        return np.array([rows[entry] for entry in entries])
    numbers = [int(entry) if re.fullmatch("[0-9]{1,18}", entry) else images for entry in entries]
    advice = f"It has {images}, numbered from 0" + (f", or named as {names[0]!r}" if names else ", without names")
    _refuse(path, lines, [number >= images for number in numbers], "name images that the split does not have", advice)
    return np.array(numbers)


def _refuse(path: Path, lines: list[int], bad: list[bool], what: str, advice: str) -> None:
    """InputError naming the first of the lines that are `bad`, if there are any."""
    found = RowErrors()
    found.add(np.array(lines), np.array(bad))
    require(not found.count, f"{path}: line{'s' if found.count > 1 else ''} {found} {what}. {advice}")
