"""Photos of a Hugging Face dataset on disk: a folder of `save_to_disk`, or an imagefolder with metadata."""

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from vsehub.checks import InputError, existing, fail, nearest, one_of, regular_members, require
from vsehub.data.photos.contained import Content, list_contents
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.photos.source import ListedPhotos, Listing, PhotoColumns, flat_captions
from vsehub.data.photos.table import list_table
from vsehub.data.splits import SplitDraw, split_named, split_words
from vsehub.extras import package
from vsehub.io.arrays import shortened
from vsehub.io.files import read_object
from vsehub.io.progress import bar
from vsehub.io.rows import listed
from vsehub.io.text import stays_inside

if TYPE_CHECKING:
    from datasets import Dataset

log = logging.getLogger(__name__)

_METADATA = ("metadata.csv", "metadata.jsonl", "metadata.parquet")
_FILE_NAME = "file_name"  # the column of an imagefolder's metadata that holds paths
_MEMBERS, _STATE = "dataset_dict.json", "state.json"  # a file that save_to_disk writes
_IMAGE = "image"  # the column of pictures, as it is renamed
_AT_ONCE = 1000  # rows of which names are read at a time
_WANTED = (
    f"a folder that datasets' save_to_disk wrote ({_MEMBERS} or {_STATE}), or an imagefolder with "
    f"{', '.join(_METADATA)}"
)


class Cell(NamedTuple):
    """The picture in a row of a dataset."""

    rows: "Dataset"
    row: int
    name: str

    def read(self) -> bytes:
        """The bytes of the picture's file."""
        found = self.rows[self.row][_IMAGE]
        content = found if isinstance(found, bytes) else found["bytes"]
        require(content is not None, "the dataset holds no bytes of it")
        return content

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class SavedDataset:
    """A saved dataset; a `PictureContainer`.

    rows: with the column image as it is stored. stamp: size and modification time of its files.
    """

    rows: "Dataset"
    stamp: list[int]

    def picture(self, row: int, name: str) -> Cell:
        """See `PictureContainer`."""
        return Cell(self.rows, row, name)

    def state(self, row: int) -> list[int]:
        """See `PictureContainer`."""
        return self.stamp


class HuggingFace(ListedPhotos):
    """A Hugging Face dataset on disk: what `save_to_disk` wrote, or an imagefolder with metadata.

    folder: the dataset's. columns: the names of its columns: image (of an imagefolder always file_name); caption, one
    or a list of them, of texts or lists of texts; split. The members of a DatasetDict, or the folders of an imagefolder
    with metadata in each, are its splits: train, val (valid, validation, dev) and test, others are not used. A single
    dataset has a column of splits, or they are drawn by seed, picture by picture; with `columns` split None, from all
    members. name: for reports, by default the folder's.

    A saved dataset is read by the package `datasets`, which runs no code of it. outside: of an imagefolder, as in
    `Table`. draw, pictures: of `ListedPhotos`.
    """

    def __init__(
        self,
        folder: str | Path,
        columns: PhotoColumns | None = None,
        name: str | None = None,
        outside: str = "refuse",
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        self.folder = existing("folder", folder, f"Give {_WANTED}")
        require(self.folder.is_dir(), f"folder: {folder} is a file; give {_WANTED}")
        one_of("outside", outside, ("refuse", "allow"))
        self._outside = outside == "allow"
        self._columns = columns or PhotoColumns()
        super().__init__(self.folder.resolve().name if name is None else name, pictures, draw)

    def read_listing(self) -> Listing:
        """See `ListedPhotos`."""
        if (self.folder / _MEMBERS).is_file() or (self.folder / _STATE).is_file():
            return self._saved()
        columns = replace(self._columns, image=_FILE_NAME)
        own = next((self.folder / name for name in _METADATA if (self.folder / name).is_file()), None)
        if own is not None:
            return list_table(own, self.folder, columns, self._outside)
        inside = sorted(one for one in self.folder.iterdir() if one.is_dir() and split_named(one.name))
        tables = {one.name: one / name for one in inside for name in _METADATA[::-1] if (one / name).is_file()}
        require(len(tables) > 0, f"folder: {self.folder} is not {_WANTED}")
        return self._imagefolders(tables)

    def _imagefolders(self, tables: Mapping[str, Path]) -> Listing:
        """An imagefolder whose splits are folders with metadata of their own."""
        columns = replace(self._columns, image=_FILE_NAME, split=None)
        names: list[str] = []
        images, captions, splits = [], [], []
        for folder, path in tables.items():
            one = list_table(path, path.parent, columns, self._outside)
            images.append(one.images + len(names))
            captions += one.captions
            names += [os.path.join(folder, name) for name in one.files.names]
            splits += [split_named(folder)] * len(one.files)
        files = FolderFiles(self.folder, names, self._outside)
        return Listing(
            files, np.concatenate(images), captions, None if self._columns.split is None else np.array(splits)
        )

    def _saved(self) -> Listing:
        """What `save_to_disk` wrote: one dataset, or several, the members of a DatasetDict."""
        members = _loaded(self.folder)
        if self._columns.split is not None and None not in members:
            others = [name for name in members if not split_named(name)]
            members = {name: one for name, one in members.items() if split_named(name)}
            require(
                len(members) > 0,
                f"folder: no member of {self.folder} has the name of a split; known are {split_words()}. Give "
                "data.columns.split=null to draw the splits from all members by seed",
            )
            if others:
                log.info("%s: members that are no split are not used: %s", self.name, listed(others))
        column, usual = self._columns.split, PhotoColumns.split
        if None not in members or (column == usual and column not in members[None].features):
            column = None
        contents = [self._content(name, one, column) for name, one in members.items()]
        listing = list_contents(contents, "folder", self.folder.name, f"dataset {self.folder.resolve()}")
        return replace(listing, splits=None) if self._columns.split is None else listing

    def _content(self, name: str | None, dataset: "Dataset", column: str | None) -> Content:
        """The pictures and captions of one dataset, and their splits: from a column, or one split by its name."""
        from datasets import Image, Value

        features = dataset.features
        image, columns = self._columns.image, [*self._columns.captions, *([] if column is None else [column])]
        for one in (image, *columns):
            require(
                one in features,
                f"folder: {self.folder} has no column {one!r}{nearest(one, features)}; expected one. Columns "
                f"there: {', '.join(features)}. Name them with data.columns.image, data.columns.caption and "
                "data.columns.split",
            )
        kind = features[image]
        stored = isinstance(kind, Value) and kind.dtype in ("binary", "large_binary")
        require(
            isinstance(kind, Image) or stored,
            f"folder: the column {image} of {self.folder} holds {kind}; expected pictures. If it holds paths, "
            "write the dataset as a table, dataset.to_parquet(FILE), and give data=table",
        )
        with _readable(self.folder):
            dataset.data.table.validate(full=True)  # Arrow trusts the file: damage could end the process
            pictures = dataset.with_format(None).select_columns([image])
            pictures = pictures if stored else pictures.cast_column(image, Image(decode=False))
            names = _names(self.folder, pictures, image, stored)
            table = dataset.with_format("arrow").select_columns(columns)[:]
            entries = {one: table.column(one).to_pylist() for one in columns}

        def refuse(row: int, column: str, found: Any) -> NoReturn:
            fail(
                f"folder: {self.folder}: row {row}, counted from 0, holds {str(found)[:60]!r} in the column {column}; "
                "expected a text or a list of texts"
            )

        cells = [(one, entries[one]) for one in self._columns.captions]
        images, captions = flat_captions(np.arange(len(names)), cells, refuse)
        splits = None if name is None else np.repeat(str(split_named(name)), len(names))
        if column is not None:
            words = [_word(features[column], one) for one in entries[column]]
            unknown = [word for word in dict.fromkeys(words) if split_named(word) is None]
            require(
                not unknown,
                f"folder: {self.folder} has the splits {listed(unknown)}; known are {split_words()}. Correct them, or "
                "draw the splits by seed with data.columns.split=null",
            )
            splits = np.array([split_named(word) for word in words])
        stats = [os.stat(file["filename"]) for file in dataset.cache_files]
        stamp = [sum(one.st_size for one in stats), max((one.st_mtime_ns for one in stats), default=0)]
        container = SavedDataset(pictures.rename_column(image, _IMAGE) if image != _IMAGE else pictures, stamp)
        return Content(container, name or "row", names, images, captions, splits)


def _loaded(folder: Path) -> "dict[str | None, Dataset]":
    """The members of a saved DatasetDict by name; {None: the dataset} of a single one.

    Raises InputError if the package datasets is missing, if the folder is damaged, or if it names files elsewhere.
    """
    datasets = package("data=huggingface", "datasets", "datasets")
    folders = [folder]
    if (folder / _MEMBERS).is_file():
        names = read_object(folder / _MEMBERS).get("splits")
        if not isinstance(names, list) or not all(isinstance(one, str) and stays_inside(one) for one in names):
            fail(f"folder: {folder / _MEMBERS} is damaged, or names folders elsewhere. Copy or save the dataset again")
        folders = [folder / name for name in names]
    for one in folders:
        files = read_object(one / _STATE).get("_data_files")
        named = [file.get("filename") if isinstance(file, dict) else None for file in files or []]
        require(
            isinstance(files, list) and all(isinstance(name, str) and stays_inside(name) for name in named),
            f"folder: {one / _STATE} is damaged, or names files elsewhere. Copy or save the dataset again",
        )
    for one in {folder, *folders}:
        regular_members(one)
    with _readable(folder):
        found = datasets.load_from_disk(str(folder), keep_in_memory=False)
    return dict(found) if isinstance(found, datasets.DatasetDict) else {None: found}


@contextmanager
def _readable(folder: Path) -> Iterator[None]:
    """Turn what `datasets` raises for a damaged folder, which can be almost anything, into an InputError."""
    try:
        yield
    except (InputError, MemoryError):
        raise
    except Exception as error:
        raise InputError(
            f"folder: {folder} cannot be read as a saved dataset ({type(error).__name__}: {shortened(error)}). Copy or "
            "save it again"
        ) from error


def _names(folder: Path, pictures: "Dataset", column: str, stored: bool) -> list[str]:
    """The names of the files that the pictures came from; row numbers if some have none.

    Raises InputError if rows hold no bytes.
    """
    import pyarrow.compute as pc

    rows = [f"row-{row:06d}" for row in range(len(pictures))]
    names: list[str | None] = []
    lacking: list[int] = []
    batches = pictures.with_format("arrow").iter(batch_size=_AT_ONCE)
    for batch in bar(f"reading names in {folder.name}", batches):
        cells = batch.column(column)
        content = cells if stored else pc.struct_field(cells, "bytes")
        lacking += (np.flatnonzero(content.is_null().to_numpy()) + len(names)).tolist()
        names += [None] * len(cells) if stored else pc.struct_field(cells, "path").to_pylist()
    require(
        not lacking,
        f"folder: {folder}: rows {listed(lacking)}, counted from 0, hold no picture, or only the path of one. Save the "
        "dataset again, with the pictures within, or without these rows",
    )
    plain = [os.path.basename(name) for name in names if name]
    valid = len(plain) == len(names) == len(set(plain)) and not any({"\n", "\r"} & set(name) for name in plain)
    return plain if valid else rows


def _word(feature: Any, entry: Any) -> Any:
    """The name of a class label; anything else as it is."""
    names = getattr(feature, "names", None)
    return names[entry] if names and isinstance(entry, int) and 0 <= entry < len(names) else entry
