"""What the rows of a side are called in reports: ids, captions, image files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from vsehub.checks import existing, require
from vsehub.data.text_lines import read_lines

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".bmp")


@dataclass(frozen=True)
class Names:
    """Of n rows the ids, the labels and the images, each None where they are not given.

    images: a file for each row, or the folder in which a row's image is called after its id. Raises InputError where
    what is given is not one a row, or a folder comes without ids.
    """

    side: str
    rows: int
    ids: Sequence[str] | None = None
    labels: Sequence[str] | None = None
    images: Sequence[str] | Path | None = None

    def __post_init__(self):
        for what in ("ids", "labels", "images"):
            given = getattr(self, what)
            count = self.rows if given is None or isinstance(given, Path) else len(given)
            require(
                count == self.rows,
                f"{self.side} has {self.rows} rows, but there are {count} {what}; expected one a row",
            )
        require(
            not isinstance(self.images, Path) or self.ids is not None,
            f"the images in {self.images} are found by ids, which {self.side} does not have: give the ids, or a text "
            "file with the path of an image on each line",
        )

    def of(self, row: int) -> dict[str, str | None]:
        """ "id" and "label" of a row, None where it has none."""
        return {
            "id": None if self.ids is None else self.ids[row],
            "label": None if self.labels is None else self.labels[row],
        }

    def image(self, row: int) -> str | None:
        """The row's image file, None where there is none."""
        if not isinstance(self.images, Path):
            return None if self.images is None else self.images[row]
        name = self.ids[row]
        candidates = [name, *(name + suffix for one in SUFFIXES for suffix in (one, one.upper()))]
        return next((str(self.images / one) for one in candidates if (self.images / one).is_file()), None)


def read_images(path: str | Path, name: str = "images") -> Path | list[str]:
    """A folder as it is, or the paths in a text file, one a line, taken from where that file lies."""
    path = existing(name, path, "Give a folder of images called after their ids, or a text file with a path a line")
    return path if path.is_dir() else [str(path.parent / line) for line in read_lines(path, "path")]
