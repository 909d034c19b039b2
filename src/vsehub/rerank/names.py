"""Ids, labels and images of queries and items, and the true pairs of both."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vsehub.checks import existing, fail, require
from vsehub.data.truth import read_ids, read_labels, read_truth
from vsehub.io.text import read_lines, stays_inside
from vsehub.metrics.positives import Positives

_LOOKED = 100  # ids whose images must exist at the start
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


@dataclass(frozen=True)
class Names:
    """The ids, labels and images of n rows, each None if not given.

    images: one file per row, or a folder in which a row's image is named after its id; symbolic links in it are
    followed. Raises InputError if there is not one id, label or file per row, if a folder is given without ids or with
    ids that lead outside it, or if it has no image for any of the first ids.
    """

    side: str
    rows: int
    ids: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    images: Sequence[str] | Path | None = None

    def __post_init__(self) -> None:
        for what in ("ids", "labels", "images"):
            given = getattr(self, what)
            count = self.rows if given is None or isinstance(given, Path) else len(given)
            require(
                count == self.rows,
                f"{self.side} has {self.rows} rows, but there are {count} {what}; expected one per row",
            )
        if isinstance(self.images, Path):
            if self.ids is None:
                fail(
                    f"the images in {self.images} are found by ids, which {self.side} does not have: give the ids, or "
                    "a text file with the path of an image on each line"
                )
            if self.rows:
                self._require_images(self.images, self.ids)

    def of(self, row: int) -> dict[str, str | None]:
        """The "id" and "label" of a row, None if it has none."""
        return {
            "id": None if self.ids is None else self.ids[row],
            "label": None if self.labels is None else self.labels[row],
        }

    def image(self, row: int) -> str | None:
        """The row's image file, None if there is none."""
        if not isinstance(self.images, Path) or self.ids is None:
            return self.images[row] if isinstance(self.images, Sequence) else None
        name, folder = str(self.ids[row]), self.images
        candidates = [name, *(name + suffix for one in SUFFIXES for suffix in (one, one.upper()))]
        return next((str(folder / one) for one in candidates if (folder / one).is_file()), None)

    def _require_images(self, folder: Path, ids: Sequence[str]) -> None:
        """Raise InputError unless all ids name files inside the folder, and one of the first files exists."""
        outside = [row for row, one in enumerate(ids) if not stays_inside(str(one))]
        if outside:
            fail(
                f"the images of {self.side} are looked for in {folder} by ids, but {len(outside)} ids lead outside "
                f"it, the first {str(ids[outside[0]])!r} (row {outside[0]}). Correct the ids, or give a "
                "text file with the path of an image on each line"
            )
        looked = min(self.rows, _LOOKED)
        require(
            any(self.image(row) is not None for row in range(looked)),
            f"{folder} has an image of none of the first {looked} ids of {self.side}: there is neither "
            f"{str(ids[0])!r} nor that name with {', '.join(SUFFIXES)}. Give the folder whose files are named after "
            "the ids, or a text file with the path of an image on each line",
        )


def read_images(path: str | Path, name: str = "images") -> Path | list[str]:
    """A folder unchanged, or the paths listed in a text file, one per line.

    Relative paths start from the folder of the text file and must stay in it, so that a list that comes with a data set
    cannot name other files. Absolute paths are allowed, since only the machine's owner can know them. Every
    file is opened as a picture only. Raises InputError naming the line of a relative path that leads outside.
    """
    path = existing(name, path, "Give a folder of images named after their ids, or a text file with one path per line")
    if path.is_dir():
        return path
    lines = read_lines(path, "path")
    for number, line in enumerate(lines, 1):
        require(
            os.path.isabs(line) or stays_inside(line),
            f"{name}: {path}:{number}: {line!r} leads outside the folder of the list. Move the list to a folder above "
            "the images, or write absolute paths",
        )
    return [str(path.parent / line) for line in lines]


def read_names(
    side: str, rows: int, given: Mapping[str, Any], ids: list[str] | None = None, labels: list[str] | None = None
) -> Names:
    """The names of a side's rows. given: setting -> file, such as "item_ids"; what it lacks is as in `ids`, `labels`.

    side: "queries" or "items". Raises InputError for a file that cannot be read.
    """
    one = {"queries": "query", "items": "item"}[side]
    files = {what: given.get(f"{one}_{what}") for what in ("ids", "labels", "images")}
    ids = ids if files["ids"] is None else read_ids(files["ids"], f"{one}_ids")
    labels = labels if files["labels"] is None else read_labels(files["labels"], f"{one}_labels")
    images = None if files["images"] is None else read_images(files["images"], f"{one}_images")
    return Names(side, rows, ids, labels, images)


def read_positives(path: str, queries: Names, items: Names) -> Positives:
    """The pairs of a table, which names rows by ids where a side has them; see `read_truth`."""
    pairs = read_truth(path, queries.rows, items.rows, queries.ids, items.ids)
    return Positives.from_pairs(*pairs, queries.rows, items.rows, complete=False)
