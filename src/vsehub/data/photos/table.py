"""Photos that a table names: a column of paths, one or more of captions and, if there is one, of splits."""

import os
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from vsehub.checks import existing, fail, one_of, require
from vsehub.data.photos.settings import PhotoColumns, PictureSettings
from vsehub.data.photos.source import Listed, ListedPhotos
from vsehub.data.splits import SplitDraw
from vsehub.data.tables import KINDS, read_table
from vsehub.io.text import stays_inside


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
        place = existing("table", table, f"Give a table of picture paths and captions: {', '.join(KINDS)}")
        folder = place.parent if images is None else images
        super().__init__(place.stem if name is None else name, place, pictures, draw)
        self.images = existing("images", folder, "Give the folder that the table's paths begin in")
        one_of("outside", outside, ("refuse", "allow"))
        self._outside, self._columns = outside == "allow", columns or PhotoColumns()

    def read_listing(self) -> Iterator[Listed]:
        """Yield the rows of the table."""
        columns = self._columns
        wanted = [columns.image, *columns.captions, *([] if columns.split is None else [columns.split])]
        default = PhotoColumns.split  # a name that the table need not have
        entries = read_table(self.place, lambda names: [one for one in wanted if one in names or one != default])
        words = entries.get(columns.split or "", [None] * len(entries[columns.image]))
        root = self.images.resolve()
        inside = cache(lambda path: Path(path).resolve().is_relative_to(root))

        @cache
        def located(path: str) -> tuple[str, str]:
            if not path.strip():
                fail(f"{self.place}: {path!r} is not the path of a picture")
            name = os.path.normpath(path)
            file = os.path.join(self.images, name)
            require(
                self._outside
                or (stays_inside(path) and inside(file if os.path.islink(file) else os.path.dirname(file))),
                f"{self.place}: {path!r} leads out of the folder {self.images}. Give the folder of the pictures, "
                "data.images=FOLDER, or, if you trust the table, data.outside=allow",
            )
            return file, name

        captions = zip(*(entries[name] for name in columns.captions), strict=True)
        for path, texts, word in zip(entries[columns.image], captions, words, strict=True):
            yield Listed(*located(path if isinstance(path, str) else ""), flat(texts), word)


def flat(entries: Iterable[Any]) -> list[Any]:
    """The captions of entries, each a caption or a list of captions."""
    return [text for entry in entries for text in (entry if isinstance(entry, list) else [entry])]
