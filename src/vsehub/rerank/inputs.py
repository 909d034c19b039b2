"""The ids, labels and image files by which reports show the rows of a side."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vsehub.checks import existing, fail, require
from vsehub.io.text import read_lines, stays_inside

_LOOKED = 100  # ids whose images are looked for before the work begins
SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


@dataclass(frozen=True)
class Names:
    """The ids, labels and images of n rows, each None where they are not given.

    images: a file for each row, or a folder in which a row's image is named after its id; symbolic links in it are
    followed. Raises InputError where there is not one id, label or file for each row; where a folder comes without ids
    or with ids that lead outside it; and where it has images of none of the first ids.
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
                f"{self.side} has {self.rows} rows, but there are {count} {what}; expected one a row",
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
        """The "id" and "label" of a row, None where it has none."""
        return {
            "id": None if self.ids is None else self.ids[row],
            "label": None if self.labels is None else self.labels[row],
        }

    def image(self, row: int) -> str | None:
        """The row's image file, None where there is none."""
        if not isinstance(self.images, Path) or self.ids is None:
            return self.images[row] if isinstance(self.images, Sequence) else None
        name, folder = str(self.ids[row]), self.images
        candidates = [name, *(name + suffix for one in SUFFIXES for suffix in (one, one.upper()))]
        return next((str(folder / one) for one in candidates if (folder / one).is_file()), None)

    def _require_images(self, folder: Path, ids: Sequence[str]) -> None:
        """InputError unless all ids name files inside the folder, and one of the first files is there."""
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
    """A folder as it is, or the paths in a text file, one a line.

    Relative paths start from the folder of the text file and must stay in it, so that a list that comes with a data set
    names no other files. Absolute paths are taken as they are, since only the owner of the machine can have written
    them. All are only opened as pictures. InputError naming the line of a relative path that leads outside.
    """
    path = existing(name, path, "Give a folder of images named after their ids, or a text file with a path a line")
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
