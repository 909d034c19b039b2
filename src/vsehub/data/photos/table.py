"""Photos that a table names: a column of paths, one or more of captions and, if there is one, of splits."""

import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vsehub.checks import existing, one_of, require
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.listing import (
    COLUMNS,
    ListedPhotos,
    Listing,
    chosen_columns,
    flat_captions,
    split_named,
    split_words,
)
from vsehub.data.photos.reading import PictureReading
from vsehub.data.tables import KINDS, TableFile
from vsehub.io.text import stays_inside

_EXPECTED = "a table with a column of picture paths and one or more of captions"


class Table(ListedPhotos):
    """A table of pictures and captions, and a folder of the picture files, decoded on demand.

    table: .csv or .tsv (UTF-8, with a header), .jsonl or .parquet. images: the folder that its paths begin in, by
    default the table's. columns: the names of its columns: image, of paths; caption, one or a list of them; split, or
    None. A row is a picture with any number of captions: in several columns, or as a list in .jsonl and .parquet;
    rows of the same path are one picture. A split is train, val (valid, validation, dev) or test; without a column of
    splits they are drawn by seed, picture by picture. name: for reports, by default the table's.

    outside: "refuse" absolute paths, those with "..", and links that lead out of the folder, or "allow" them. Other
    arguments: of `ListedPhotos` and `PictureReading`.
    """

    def __init__(
        self,
        table: str | Path,
        images: str | Path | None = None,
        columns: dict[str, Any] | None = None,
        name: str | None = None,
        val_share: float = 0.1,
        test_share: float = 0.1,
        seed: int = 0,
        outside: str = "refuse",
        uncaptioned: str = "stop",
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augment: str = "none",
        unreadable: str = "stop",
        threads: int | None = None,
        cache: str | None = None,
    ):
        reading = PictureReading(size, resize, crops, augment, unreadable, threads, cache)
        super().__init__(reading, val_share, test_share, seed, uncaptioned)
        self.table = existing("table", table, f"Give {_EXPECTED}: {', '.join(KINDS)}")
        self.images = existing(
            "images", self.table.parent if images is None else images, "Give the folder that the table's paths begin in"
        )
        require(self.images.is_dir(), f"images: {images} is a file; give the folder that the table's paths begin in")
        one_of("outside", outside, ("refuse", "allow"))
        self._outside = outside == "allow"
        self._columns = chosen_columns(columns)
        self.name = self.table.stem if name is None else name

    def _listed(self) -> Listing:
        return list_table(self.table, self.images, *self._columns, self._outside)

    def _require_files(self, split: str, files: FolderFiles) -> None:
        files.require(split, self._outside)


def list_table(path: Path, folder: Path, image: str, captions: list[str], split: str | None, outside: bool) -> Listing:
    """The pictures and captions of a table.

    image, captions, split: the names of its columns. A table may lack the column "split"; then its splits are None.
    outside: whether paths may lead out of `folder`. Raises InputError naming the lines that have no path, one that
    leads elsewhere, an unknown split, another split than an earlier line of the same picture, or a caption that is no
    text.
    """
    table = TableFile(path, _EXPECTED)
    names = table.names()
    split = None if split == COLUMNS["split"] and split not in names else split
    columns = [image, *captions, *([] if split is None else [split])]
    table.require_columns(columns, "Name them with data.columns.image, data.columns.caption and data.columns.split")
    entries = table.entries(list(dict.fromkeys(columns)))
    require(len(entries[image]) > 0, f"{path} has no rows; expected one or more for each picture")
    paths = _paths(table, entries[image], outside)
    numbers: dict[str, int] = {}
    rows = np.fromiter((numbers.setdefault(one, len(numbers)) for one in paths), np.int64, len(paths))
    splits = None if split is None else _splits(table, entries[split], rows, len(numbers))

    def refuse(row: int, column: str, found: Any) -> NoReturn:
        advice = f"The column {column} should hold texts or lists of texts"
        table.refuse(np.arange(len(rows)) == row, "have a caption that is no text", advice, {row: found})

    images, texts = flat_captions(rows, [(column, entries[column]) for column in captions], refuse)
    return Listing(FolderFiles(folder, list(numbers)), images, texts, splits)


def _paths(table: TableFile, entries: list[Any], outside: bool) -> list[str]:
    """The entries as paths in the simplest form, so that two forms of one path are one picture."""

    def refuse(bad: list[bool], what: str, advice: str) -> None:
        if any(bad):
            table.refuse(np.array(bad), what, advice, entries)

    refuse(
        [not isinstance(one, str) or not one.strip() for one in entries],
        "have no path of a picture",
        "Write the missing paths, or remove the rows",
    )
    refuse(
        ["://" in one for one in entries],
        "name addresses, not files",
        "Download the pictures first, and give the paths of their files",
    )
    refuse(["\n" in one or "\r" in one or "\0" in one for one in entries], "name files with line breaks", "Rename them")
    refuse([not one.isascii() and not _encodes(one) for one in entries], "name files by no valid text", "Rename them")
    refuse(
        [not outside and not stays_inside(one) for one in entries],
        "name files by an absolute path or one with '..'",
        "Give paths in the folder of images, data.images=FOLDER, or, if you trust the table, data.outside=allow",
    )
    return [os.path.normpath(one) for one in entries]


def _encodes(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _splits(table: TableFile, entries: list[Any], rows: np.ndarray, count: int) -> np.ndarray:
    """The split of each picture. rows: (n,) the picture of each entry."""
    known = {entry: split_named(entry) for entry in dict.fromkeys(map(str, entries))}
    words = [known[str(entry)] for entry in entries]
    strange = np.array([word is None for word in words])
    if strange.any():
        advice = f"Known are {split_words()}. Correct them, or draw the splits by seed with data.columns.split=null"
        table.refuse(strange, "have an unknown split", advice, entries)
    named = np.array(words)
    splits = np.empty(count, named.dtype)
    splits[rows[::-1]] = named[::-1]  # the first entry of a picture
    apart = splits[rows] != named
    if apart.any():
        advice = "A picture in two splits would make a test too easy: keep each in one"
        table.refuse(apart, "repeat a picture of another split", advice)
    return splits
