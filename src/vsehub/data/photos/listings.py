"""Photos that a file lists: a table with a column of paths, or the json of Karpathy's splits."""

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from json import loads
from pathlib import Path
from typing import Any

from vsehub.checks import existing, require
from vsehub.components import Component
from vsehub.data.photos.pictures import PictureSettings
from vsehub.data.photos.source import Listed, ListedPhotos
from vsehub.data.sources import SplitDraw
from vsehub.data.tables import TABLE_SUFFIXES, read_table
from vsehub.io.arrays import readable


@dataclass(frozen=True)
class PhotoColumns(Component):
    """The names of the columns of a table or a dataset.

    image: column of the pictures or their paths. caption: column of the captions, or a list of columns. split: column
    of the splits; None: no column.
    """

    image: str = "image"
    caption: str | list[str] = "caption"
    split: str | None = "split"

    @property
    def captions(self) -> list[str]:
        """The names of all columns of captions."""
        return [self.caption] if isinstance(self.caption, str) else list(self.caption)


class Table(ListedPhotos):
    """A table of pictures and captions, and a folder of the picture files, decoded on demand.

    table: .csv or .tsv (UTF-8, with a header), .jsonl or .parquet. images: the folder that its paths begin in, by
    default the table's; no path may lead out of it, links are followed. columns: the names of its columns; that of the
    images holds paths. A row is a picture with any number of captions: in several columns, or as a list in .jsonl and
    .parquet; rows of the same path are one picture. A split is train, val (valid, validation, dev) or test; without a
    column of splits they are drawn by seed, picture by picture. name: name in reports, by default the table's. draw,
    pictures: as in `ListedPhotos`.
    """

    def __init__(
        self,
        table: str | Path,
        images: str | Path | None = None,
        columns: PhotoColumns | None = None,
        name: str | None = None,
        draw: SplitDraw | None = None,
        pictures: PictureSettings | None = None,
    ):
        path = existing("table", table, f"Give a table of picture paths and captions: {', '.join(TABLE_SUFFIXES)}")
        super().__init__(path.stem if name is None else name, path, pictures, draw)
        folder = path.parent if images is None else images
        self.images = existing("images", folder, "Give the folder that the table's paths begin in")
        self._columns = columns or PhotoColumns()

    def read_listing(self) -> Iterator[Listed]:
        """Yield the rows of the table."""
        columns = self._columns
        wanted = [columns.image, *columns.captions, *filter(None, [columns.split])]
        optional = PhotoColumns.split  # without a column of this default name, splits are drawn
        entries = read_table(self.listing, lambda names: [name for name in wanted if name != optional or name in names])
        paths = entries[columns.image]
        splits = entries.get(columns.split or "", [None] * len(paths))
        captions = zip(*(entries[name] for name in columns.captions), strict=True)
        for path, texts, split in zip(paths, captions, splits, strict=True):
            require(
                isinstance(path, str) and path.strip() != "", f"{self.listing}: {path!r} is not a path of a picture"
            )
            file = listed_path(self.images, path, self.listing)
            yield Listed(file, os.path.relpath(file, self.images), flat(texts), split)


class Karpathy(ListedPhotos):
    """The json of the splits and a folder of image files, decoded on demand.

    json: dataset_coco.json, dataset_flickr30k.json, dataset_flickr8k.json or a file of that layout. images: the folder
    of the files, or of COCO's folders train2014 and val2014; the json may only name files inside it, whose links are
    followed. name: name in reports, by default the json's. COCO's restval images belong to train. pictures: of
    `ListedPhotos`. Each image has captions of its own, also where two are equal.
    """

    shared = False

    def __init__(
        self, json: str | Path, images: str | Path, name: str | None = None, pictures: PictureSettings | None = None
    ):
        path = existing("json", json, "Give Karpathy's json of the splits, for example dataset_flickr30k.json")
        super().__init__(name or path.stem.removeprefix("dataset_"), path, pictures)
        self.images = existing("images", images, "Give the folder that holds the image files")

    def read_listing(self) -> Iterator[Listed]:
        """Yield the pictures of the json file."""
        with readable(self.listing, KeyError, TypeError, AttributeError):
            images = loads(self.listing.read_bytes())["images"]
            folders = {image.get("filepath", "") for image in images}
            folder_exists = {name: (self.images / name).is_dir() for name in folders}
            for image in images:
                name, folder = image["filename"], image.get("filepath", "")
                # COCO's pictures may also lie in one folder.
                path = os.path.join(folder, name) if folder_exists[folder] else name
                file = listed_path(self.images, path, self.listing)
                split = "train" if image["split"] == "restval" else image["split"]
                yield Listed(file, name, [sentence["raw"] for sentence in image["sentences"]], split)


def listed_path(folder: Path, name: str, listing: Path) -> str:
    """The path of a file below a folder. Raises InputError if `name` leads out of the folder; links are followed.

    listing: the file that names it, for the message.
    """
    file = os.path.normpath(os.path.join(folder, name))
    require(
        Path(file).is_relative_to(os.path.normpath(folder)),
        f"{listing}: {name!r} leads out of the folder {folder}; give the folder of all pictures, data.images=FOLDER",
    )
    return file


def flat(entries: Iterable[Any]) -> list[Any]:
    """The captions of entries, each a caption or a list of captions."""
    return [text for entry in entries for text in (entry if isinstance(entry, list) else [entry])]
