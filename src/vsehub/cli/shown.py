"""Names, captions and thumbnails of a split's rows for a page, and galleries of search results."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsehub.checks import existing, require
from vsehub.data.sources import CaptionedImages
from vsehub.evaluation.trained import Hits
from vsehub.ranking.inputs import Names
from vsehub.report.pages.gallery import Gallery, GalleryEntry
from vsehub.report.pages.templates import Thumbnails


class Hit(NamedTuple):
    """A found row: its score under the criterion, and its plain similarity to the query."""

    row: int
    score: float
    similarity: float


def hits_of(found: Hits) -> list[list[Hit]]:
    """The hits of each query, best first."""
    columns = zip(*(field.tolist() for field in (found.rows, found.scores, found.similarities)), strict=True)
    return [[Hit(*hit) for hit in zip(*query, strict=True)] for query in columns]


class Shown:
    """A split's images by name, caption and thumbnail.

    folder: the folder of the image files; None takes the split's own pixels, if it has any. plain: the scores are plain
    similarities; otherwise similarities are shown beside them. Raises InputError if the split does not name its files.
    """

    def __init__(self, split: CaptionedImages, folder: str | None, plain: bool):
        self.split, self._plain = split, plain
        self.thumbnails = Thumbnails()
        self._pixels = split.images.ndim == 4 and split.images.shape[1] == 3
        self._files = None
        if folder is not None:
            path = existing("images", folder, "Give the folder of the image files, or omit images")
            require(path.is_dir(), f"images: {folder} is a file; give the folder of the image files")
            require(
                split.names is not None,
                "images: the data names no image files; list them in a file ..._ids.txt beside the captions, one per "
                "line, or omit images",
            )
            self._files = Names("images", len(split.images), ids=split.names, images=path)

    @property
    def pictured(self) -> bool:
        """Whether there are pictures to show."""
        return self._files is not None or self._pixels

    def name(self, row: int) -> str:
        """The image's file name, or "row ROW" if it has none."""
        return f"row {row}" if self.split.names is None else self.split.names[row]

    def captions(self, row: int) -> list[str]:
        """The captions of an image."""
        return [self.split.text_of(t) for t in self.split.captions_of(row)]

    def thumbnail(self, row: int) -> str | None:
        """The image as a data URL; None if it cannot be shown."""
        if self._files is not None:
            name = self.name(row)
            return self.thumbnails(self._files.image(row) or Path(name), name)
        return self.thumbnails(np.asarray(self.split.images[row]), self.name(row)) if self._pixels else None

    def of_text(self, text: str, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The images that a text found."""
        found = [
            GalleryEntry(rank, *self._scores(hit), self.name(hit.row), self._first(hit.row), self.thumbnail(hit.row))
            for rank, hit in enumerate(hits, 1)
        ]
        return Gallery(f"“{text}”", notes, found, self.pictured)

    def of_image(self, row: int, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The captions that an image found, its own marked."""
        own = set(self.split.captions_of(row))
        found = [
            GalleryEntry(rank, *self._scores(hit), None, self.split.text_of(hit.row), own=hit.row in own)
            for rank, hit in enumerate(hits, 1)
        ]
        count = f"{sum(one.own for one in found)} of its {len(own)} own captions are among the {len(found)} nearest."
        return Gallery(
            f"Captions of {self.name(row)}", [count, *notes], found, False, self.name(row), self.thumbnail(row)
        )

    def _first(self, row: int) -> str:
        return next(iter(self.captions(row)), "")

    def _scores(self, hit: Hit) -> tuple[str, str | None]:
        return f"{hit.score:.4f}", None if self._plain else f"{hit.similarity:.4f}"
