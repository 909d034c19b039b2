"""What a search found, as lines for the terminal and as galleries for the page."""

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from vsehub.checks import existing, require
from vsehub.cli.split_search import Hit
from vsehub.data.captioned import CaptionedImages
from vsehub.report.gallery import Found, Gallery
from vsehub.report.thumbnails import Thumbnails
from vsehub.retrieval.names import Names


class Shown:
    """A split's images by name, caption and thumbnail.

    folder: where the image files lie, or None: the pixels of the split itself, where it has any. plain: scores are
    plain similarities; else these stand beside the scores. Raises InputError where there are no names to find files by.
    """

    def __init__(self, split: CaptionedImages, folder: str | None, plain: bool):
        self.split, self._plain = split, plain
        self.thumbnails = Thumbnails()
        self._pixels = split.images.ndim == 4 and split.images.shape[1] == 3
        self._files = None
        if folder is not None:
            path = existing("images", folder, "Give the folder of the image files, or leave images out")
            require(path.is_dir(), f"images: {folder} is a file; give the folder of the image files")
            require(
                split.names is not None,
                "images: the data names no image files; put them into a file ..._ids.txt beside the captions, one a "
                "line, or leave images out",
            )
            self._files = Names("images", len(split.images), ids=split.names, images=path)

    @property
    def pictured(self) -> bool:
        """Whether there are pictures to show."""
        return self._files is not None or self._pixels

    def name(self, row: int) -> str:
        """The image's file name, or its row."""
        return f"row {row}" if self.split.names is None else self.split.names[row]

    def captions(self, row: int) -> list[str]:
        """What the data says of an image."""
        return [self.split.captions[t] for t in (self.split.image_index == row).nonzero()[0]]

    def thumbnail(self, row: int) -> str | None:
        """The image as a data URL; None where it cannot be shown."""
        if self._files is not None:
            name = self.name(row)
            return self.thumbnails(self._files.image(row) or Path(name), name)
        return self.thumbnails(np.asarray(self.split.images[row]), self.name(row)) if self._pixels else None

    def of_text(self, text: str, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The images that a text found."""
        found = [
            Found(rank, *self._scores(hit), self.name(hit.row), self._first(hit.row), self.thumbnail(hit.row))
            for rank, hit in enumerate(hits, 1)
        ]
        return Gallery(f"“{text}”", notes, found, self.pictured)

    def of_image(self, row: int, notes: Sequence[str], hits: Sequence[Hit]) -> Gallery:
        """The captions that an image found, its own marked."""
        found = [
            Found(
                rank, *self._scores(hit), None, self.split.captions[hit.row], own=self.split.image_index[hit.row] == row
            )
            for rank, hit in enumerate(hits, 1)
        ]
        own = self.captions(row)
        told = f"{sum(one.own for one in found)} of its {len(own)} own captions are among the {len(found)} nearest."
        return Gallery(
            f"Captions of {self.name(row)}", [told, *notes], found, False, self.name(row), self.thumbnail(row)
        )

    def _first(self, row: int) -> str:
        return next(iter(self.captions(row)), "")

    def _scores(self, hit: Hit) -> tuple[str, str | None]:
        return f"{hit.score:.4f}", None if self._plain else f"{hit.similarity:.4f}"


def listed(gallery: Gallery) -> str:
    """A gallery for the terminal: a line for each thing that was found; an image's own captions have a star."""
    width = shutil.get_terminal_size((160, 24)).columns
    rows = [("rank", "score", "similarity", "image", "caption" if gallery.found[0].name is None else "first caption")]
    rows += [
        (str(one.rank), one.score, one.similarity or "", one.name or "", ("* " if one.own else "") + one.caption)
        for one in gallery.found
    ]
    used = [n for n, column in enumerate(zip(*rows[1:], strict=True)) if any(column)]
    widths = {n: max(len(row[n]) for row in rows) for n in used}
    lines = ["  ".join(f"{row[n]:{'<' if n > 2 else '>'}{widths[n]}}" for n in used)[:width].rstrip() for row in rows]
    return "\n".join([gallery.heading, *gallery.notes, "", *lines])
