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
from vsehub.data.tables import KINDS, read_table, refuse_rows
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
    optional = columns.split == PhotoColumns.split  # the default's name
    named = [] if columns.split is None or optional else [columns.split]
    wanted = dict.fromkeys([columns.image, *columns.captions, *named])
    entries = read_table(path, list(wanted), [columns.split] if optional else [])
    require(len(entries[columns.image]) > 0, f"{path} has no rows; expected one or more for each picture")
    paths = _paths(path, entries[columns.image], outside)
    numbers: dict[str, int] = {}
    rows = np.fromiter((numbers.setdefault(one, len(numbers)) for one in paths), np.int64, len(paths))
    splits = None if columns.split not in entries else _splits(path, entries[columns.split], rows, len(numbers))

    def refuse(row: int, column: str, found: Any) -> NoReturn:
        refuse_rows(path, np.arange(len(rows)) == row, f"{column} is no text", entries[column])

    images, texts = flat_captions(rows, [(column, entries[column]) for column in columns.captions], refuse)
    return Listing(FolderFiles(folder, list(numbers), outside), images, texts, splits)


def _paths(table: Path, entries: list[Any], outside: bool) -> list[str]:
    """The entries as paths in the simplest form, so that two forms of one path are one picture."""

    def refuse(bad: list[bool], what: str) -> None:
        if any(bad):
            refuse_rows(table, bad, what, entries)

    refuse([not isinstance(one, str) or not one.strip() for one in entries], "no path of a picture")
    refuse(["://" in one for one in entries], "addresses instead of files")
    refuse(["\n" in one or "\r" in one or "\0" in one for one in entries], "names with line breaks")
    refuse([not is_unicode(one) for one in entries], "names that are no valid text")
    refuse(
        [not outside and not stays_inside(one) for one in entries],
        "absolute paths or '..' (data.outside=allow takes them, if you trust the table)",
    )
    return [os.path.normpath(one) for one in entries]


def _splits(table: Path, entries: list[Any], rows: np.ndarray, count: int) -> np.ndarray:
    """The split of each picture. rows: (n,) the picture of each entry."""
    known = {entry: split_named(entry) for entry in dict.fromkeys(map(str, entries))}
    words = [known[str(entry)] for entry in entries]
    if None in words:
        what = f"unknown splits (known: {split_words()}; data.columns.split=null draws them)"
        refuse_rows(table, [word is None for word in words], what, entries)
    named = np.array(words)
    splits = np.empty(count, named.dtype)
    splits[rows[::-1]] = named[::-1]  # the first entry of a picture
    apart = splits[rows] != named
    if apart.any():
        refuse_rows(table, apart, "pictures of another split", entries)
    return splits
