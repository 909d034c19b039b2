"""Picture files in a folder: found by listing folders, and refused outside of it."""

import os
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from vsehub.checks import fail, nearest
from vsehub.io.progress import bar
from vsehub.io.rows import listed

_MOST_LISTED = 1000  # files of a folder whose names are compared with a missing one


class FolderFiles:
    """Pictures that are files in a folder.

    folder: the folder. names: (I,) their paths in it. outside: whether links may lead to files outside the folder.
    title: of the progress bar.
    """

    setting = "images"

    def __init__(self, folder: Path, names: Sequence[str], outside: bool = False):
        self.folder, self.names, self._outside = folder, list(names), outside
        self.title, self.identity = folder.name, str(folder.resolve())

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, row: int) -> str:
        return os.path.join(self.folder, self.names[row])

    def take(self, rows: np.ndarray) -> "FolderFiles":
        """The files of these rows."""
        return FolderFiles(self.folder, [self.names[row] for row in rows.tolist()], self._outside)

    def states(self) -> list[list[int]]:
        """Size and modification time of each file."""
        found = (os.stat(self[row]) for row in range(len(self)))
        return [[one.st_size, one.st_mtime_ns] for one in found]

    def located(self, split: str) -> "FolderFiles":
        """See `PictureCollection`. Raises InputError if links lead to files outside the folder and may not."""
        found = look_up(self.folder, self.names)
        if found.missing:
            fail(
                f"images: {len(found.missing):,} of {len(self):,} pictures of the split {split!r} are missing in "
                f"{self.folder}: {listed(found.missing)}{_near(self.folder, found.missing[0])}. Give the folder that "
                "the paths begin in, or copy the pictures there"
            )
        if found.leaving and not self._outside:
            fail(
                f"images: {len(found.leaving):,} of {len(self):,} pictures of the split {split!r} are links, or lie "
                f"behind links, that lead out of {self.folder}: {listed(found.leaving)}. Copy the pictures there, give "
                "the folder where they are, or, if you trust the table, data.outside=allow"
            )
        return self


class LookedUp(NamedTuple):
    """Names that are not files, and names of files that are not below the folder once links are followed."""

    missing: list[str]
    leaving: list[str]


def look_up(folder: Path, names: Sequence[str]) -> LookedUp:
    """The names of missing files, and of files outside the folder.

    Each folder is listed once. The listing shows which entries are links, so that only links are resolved one by one.
    names: paths in the folder.
    """
    root = os.path.realpath(folder)
    wanted: dict[str, set[str]] = defaultdict(set)
    for name in names:
        head, tail = os.path.split(name)
        wanted[head].add(tail)
    missing, leaving = set(), set()
    for head, tails in bar(f"finding pictures in {folder.name}", wanted.items()):
        inner = os.path.join(folder, head)
        left = tails - _plain_files(inner, tails)
        absent = {tail for tail in left if not os.path.isfile(os.path.join(inner, tail))}
        out = tails if not _within(inner, root) else {t for t in left if not _within(os.path.join(inner, t), root)}
        missing |= {os.path.join(head, tail) for tail in absent}
        leaving |= {os.path.join(head, tail) for tail in out - absent}
    return LookedUp([name for name in names if name in missing], [name for name in names if name in leaving])


def _plain_files(folder: str, tails: set[str]) -> set[str]:
    """Those of the names that are files, not links, in the listing of a folder."""
    try:
        with os.scandir(folder) as entries:
            return {one.name for one in entries if one.name in tails and one.is_file(follow_symlinks=False)}
    except OSError:
        return set()


def _within(path: str, root: str) -> bool:
    real = os.path.realpath(path)
    return real == root or real.startswith(os.path.join(root, ""))


def _near(folder: Path, name: str) -> str:
    head, tail = os.path.split(name)
    try:
        with os.scandir(os.path.join(folder, head)) as entries:
            return nearest(tail, [one.name for one, _ in zip(entries, range(_MOST_LISTED), strict=False)])
    except OSError:
        return ""
