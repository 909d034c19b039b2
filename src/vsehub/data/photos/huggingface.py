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
from vsehub.data.photos.files import FolderFiles
from vsehub.data.photos.settings import PictureSettings
from vsehub.data.photos.source import ListedPhotos, Listing, PhotoColumns, flat_captions
from vsehub.data.photos.table import list_table
from vsehub.data.splits import SplitDraw, split_named, split_words
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
_PARTS, _STATE = "dataset_dict.json", "state.json"  # which save_to_disk writes
_IMAGE = "image"  # the column of pictures, as it is renamed
_AT_ONCE = 1000  # rows whose names are read at a time
_WANTED = (
    f"a folder that datasets' save_to_disk wrote ({_PARTS} or {_STATE}), or an imagefolder with {', '.join(_METADATA)}"
)
_INSTALL = "data=huggingface reads saved datasets with the package datasets. Install it: pip install 'vsehub[datasets]'"


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
class DatasetFiles:
    """Pictures in the rows of saved datasets.

    datasets: one for each part, with the column image as it is stored. folder: for messages. stamps: size and
    modification time of each part. part, row: (I,) the place of each picture. names: (I,) their names.
    """

    datasets: "list[Dataset]"
    folder: Path
    stamps: list[list[int]]
    part: np.ndarray
    row: np.ndarray
    names: list[str]

    setting = "folder"

    @property
    def title(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def identity(self) -> str:
        """The folder."""
        return f"dataset {self.folder.resolve()}"

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> Cell:
        return Cell(self.datasets[self.part[row]], int(self.row[row]), self.names[row])

    def take(self, rows: np.ndarray) -> "DatasetFiles":
        """The pictures of these rows."""
        names = [self.names[row] for row in rows.tolist()]
        return DatasetFiles(self.datasets, self.folder, self.stamps, self.part[rows], self.row[rows], names)

    def located(self, split: str) -> "DatasetFiles":
        """See `PictureCollection`: the pictures are in the dataset's own files."""
        return self

    def states(self) -> list[list[int]]:
        """Place of each picture, and size and time of its part."""
        return [
            [part, row, *self.stamps[part]] for part, row in zip(self.part.tolist(), self.row.tolist(), strict=True)
        ]


class HuggingFace(ListedPhotos):
    """A Hugging Face dataset on disk: what `save_to_disk` wrote, or an imagefolder with metadata.

    folder: the dataset's. columns: the names of its columns: image (of an imagefolder always file_name); caption, one
    or a list of them, of texts or lists of texts; split. The parts of a DatasetDict, or of an imagefolder with
    metadata in each, are its splits: train, val (valid, validation, dev) and test, others are not used. A single
    dataset has a column of splits, or they are drawn by seed, picture by picture; with `columns` split None, all parts
    are drawn from. name: for reports, by default the folder's.

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
        if (self.folder / _PARTS).is_file() or (self.folder / _STATE).is_file():
            return self._saved()
        parts = _parts_with_metadata(self.folder)
        if not parts:
            fail(f"folder: {self.folder} is not {_WANTED}")
        if None in parts:
            return list_table(parts[None], self.folder, replace(self._columns, image=_FILE_NAME), self._outside)
        return self._imagefolders({one: path for one, path in parts.items() if one is not None})

    def _imagefolders(self, parts: Mapping[str, Path]) -> Listing:
        """An imagefolder whose splits are folders with metadata of their own."""
        columns = replace(self._columns, image=_FILE_NAME, split=None)
        names: list[str] = []
        images, captions, splits = [], [], []
        for folder, path in parts.items():
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
        """What `save_to_disk` wrote: one dataset, or several parts."""
        parts = _loaded(self.folder)
        named = self._columns.split is not None and None not in parts
        if named:
            others = [name for name in parts if not split_named(name)]
            parts = {name: one for name, one in parts.items() if split_named(name)}
            require(
                len(parts) > 0,
                f"folder: no part of {self.folder} has the name of a split; known are {split_words()}. Give "
                "data.columns.split=null to draw the splits from all parts by seed",
            )
            if others:
                log.info("%s: parts that are no split are not used: %s", self.name, listed(others))
        column, usual = self._columns.split, PhotoColumns.split
        if None not in parts or (column == usual and column not in parts[None].features):
            column = None
        found = [self._part(one, column) for one in parts.values()]
        counts = np.array([len(one.names) for one in found])
        firsts = np.cumsum(counts) - counts
        names = [name for one in found for name in one.names]
        if len(set(names)) < len(names):
            titles = [name or "row" for name in parts]
            names = [f"{title}-{row:06d}" for title, count in zip(titles, counts, strict=True) for row in range(count)]
        places = np.repeat(np.arange(len(found)), counts), np.concatenate([np.arange(count) for count in counts])
        files = DatasetFiles([one.pictures for one in found], self.folder, [one.stamp for one in found], *places, names)
        images = np.concatenate([one.images + first for one, first in zip(found, firsts, strict=True)])
        splits = np.repeat([str(split_named(name)) for name in parts], counts) if named else found[0].splits
        return Listing(files, images, [caption for one in found for caption in one.captions], splits)

    def _part(self, dataset: "Dataset", split: str | None) -> "_SavedDataset":
        """The pictures, captions and, from the column `split`, splits of one dataset."""
        from datasets import Image, Value

        features = dataset.features
        image, columns = self._columns.image, [*self._columns.captions, *([] if split is None else [split])]
        for column in (image, *columns):
            require(
                column in features,
                f"folder: {self.folder} has no column {column!r}{nearest(column, features)}; expected one. Columns "
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
            dataset.data.table.validate(full=True)  # Arrow itself trusts the file: damage would end the process
            pictures = dataset.with_format(None).select_columns([image])
            pictures = pictures if stored else pictures.cast_column(image, Image(decode=False))
            names = _names(self.folder, pictures, image, stored)
            table = dataset.with_format("arrow").select_columns(columns)[:]
            entries = {column: table.column(column).to_pylist() for column in columns}
        cells = [(column, entries[column]) for column in self._columns.captions]
        images, captions = flat_captions(np.arange(len(names)), cells, self._refuse_caption)
        words = None if split is None else self._splits([_word(features[split], one) for one in entries[split]])
        pictures = pictures.rename_column(image, _IMAGE) if image != _IMAGE else pictures
        return _SavedDataset(pictures, _stamp(dataset), names, images, captions, words)

    def _refuse_caption(self, row: int, column: str, found: Any) -> NoReturn:
        fail(
            f"folder: {self.folder}: row {row}, counted from 0, holds {str(found)[:60]!r} in the column {column}; "
            "expected a text or a list of texts"
        )

    def _splits(self, words: list[Any]) -> np.ndarray:
        unknown = [word for word in dict.fromkeys(words) if split_named(word) is None]
        require(
            not unknown,
            f"folder: {self.folder} has the splits {listed(unknown)}; known are {split_words()}. Correct them, or draw "
            "the splits by seed with data.columns.split=null",
        )
        return np.array([split_named(word) for word in words])


class _SavedDataset(NamedTuple):
    """One saved dataset: its pictures and their names, the picture of each caption, captions, and splits."""

    pictures: "Dataset"
    stamp: list[int]
    names: list[str]
    images: np.ndarray
    captions: list[str]
    splits: np.ndarray | None


def _parts_with_metadata(folder: Path) -> dict[str | None, Path]:
    """The metadata of an imagefolder (None), or of its folders that are named as splits are."""
    for name in _METADATA:
        if (folder / name).is_file():
            return {None: folder / name}
    inside = sorted(one for one in folder.iterdir() if one.is_dir() and split_named(one.name))
    return {one.name: one / name for one in inside for name in _METADATA[::-1] if (one / name).is_file()}


def _loaded(folder: Path) -> "dict[str | None, Dataset]":
    """The parts of a saved dataset by name; {None: the dataset} if it has none.

    Raises InputError if the package datasets is missing, if the folder is damaged, or if it names files elsewhere.
    """
    try:
        import datasets
    except ImportError as error:
        raise InputError(_INSTALL) from error
    folders = [folder]
    if (folder / _PARTS).is_file():
        names = read_object(folder / _PARTS).get("splits")
        if not isinstance(names, list) or not all(isinstance(one, str) and stays_inside(one) for one in names):
            fail(f"folder: {folder / _PARTS} is damaged, or names folders elsewhere. Copy or save the dataset again")
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


def _stamp(dataset: "Dataset") -> list[int]:
    """The size of the files of a dataset, and the time of the latest."""
    stats = [os.stat(file["filename"]) for file in dataset.cache_files]
    return [sum(one.st_size for one in stats), max((one.st_mtime_ns for one in stats), default=0)]


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
