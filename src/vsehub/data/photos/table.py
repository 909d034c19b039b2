"""Photos that a table names: a column of paths, one or more of captions and, if there is one, of splits."""

import os
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from vsehub.checks import existing, one_of, require
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.photos.source import ListedPhotos, Listing, PhotoColumns, flat_captions, is_unicode
from vsehub.data.splits import SplitDraw, split_named, split_words
from vsehub.data.tables import KINDS, TableFile
from vsehub.io.text import stays_inside

_EXPECTED = "a table with a column of picture paths and one or more of captions"


class Table(ListedPhotos):
    """A table of pictures and captions, and a folder of the picture files, decoded on demand.

    table: .csv or .tsv (UTF-8, with a header), .jsonl or .parquet. images: the folder that its paths begin in, by
    default the table's. columns: the names of its columns, the images' being paths. A row is a picture with any number
    of captions: in several columns, or as a list in .jsonl and .parquet; rows of the same path are one picture. A split
    is train, val (valid, validation, dev) or test; without a column of splits they are drawn by seed, picture by
    picture. name: for reports, by default the table's. outside: "refuse" absolute paths, those with "..", and links
    that lead out of the folder, or "allow" them. draw, pictures: of `ListedPhotos`.
    """

    def __init__(
        self,
        table: str | Path,
        images: str | Path | None = None,
        columns: PhotoColumns | None = None,
        name: str | None = None,
        outside: str = "refuse",
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        self.table = existing("table", table, f"Give {_EXPECTED}: {', '.join(KINDS)}")
        super().__init__(self.table.stem if name is None else name, pictures, draw)
        self.images = existing(
            "images", self.table.parent if images is None else images, "Give the folder that the table's paths begin in"
        )
        require(self.images.is_dir(), f"images: {images} is a file; give the folder that the table's paths begin in")
        one_of("outside", outside, ("refuse", "allow"))
        self._outside = outside == "allow"
        self._columns = columns or PhotoColumns()

    def read_listing(self) -> Listing:
        """See `ListedPhotos`."""
        return list_table(self.table, self.images, self._columns, self._outside)


def list_table(path: Path, folder: Path, columns: PhotoColumns, outside: bool) -> Listing:
    """The pictures and captions of a table.

    A table may lack the column "split"; then its splits are None. outside: whether paths may lead out of `folder`.
    Raises InputError naming the lines that have no path, one that leads elsewhere, an unknown split, another split than
    an earlier line of the same picture, or a caption that is no text.
    """
    table = TableFile(path, _EXPECTED)
    split = None if columns.split == PhotoColumns.split and columns.split not in table.names() else columns.split
    wanted = [columns.image, *columns.captions, *([] if split is None else [split])]
    table.require_columns(wanted, "Name them with data.columns.image, data.columns.caption and data.columns.split")
    entries = table.entries(list(dict.fromkeys(wanted)))
    require(len(entries[columns.image]) > 0, f"{path} has no rows; expected one or more for each picture")
    paths = _paths(table, entries[columns.image], outside)
    numbers: dict[str, int] = {}
    rows = np.fromiter((numbers.setdefault(one, len(numbers)) for one in paths), np.int64, len(paths))
    splits = None if split is None else _splits(table, entries[split], rows, len(numbers))

    def refuse(row: int, column: str, found: Any) -> NoReturn:
        advice = f"The column {column} should hold texts or lists of texts"
        table.refuse(np.arange(len(rows)) == row, "have a caption that is no text", advice, {row: found})

    images, texts = flat_captions(rows, [(column, entries[column]) for column in columns.captions], refuse)
    return Listing(FolderFiles(folder, list(numbers), outside), images, texts, splits)


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
    refuse([not is_unicode(one) for one in entries], "name files by no valid text", "Rename them")
    refuse(
        [not outside and not stays_inside(one) for one in entries],
        "name files by an absolute path or one with '..'",
        "Give paths in the folder of images, data.images=FOLDER, or, if you trust the table, data.outside=allow",
    )
    return [os.path.normpath(one) for one in entries]


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
