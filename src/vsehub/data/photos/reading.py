"""How a source of photos reads its pictures: their size and crops, and what happens to damaged ones."""

import logging
from collections.abc import Sequence
from functools import partial
from typing import Protocol

import numpy as np

from vsehub.checks import one_of, require
from vsehub.data.photos.pictures import PictureFiles, Pictures, checked, memory_file
from vsehub.io.files import cache_folder
from vsehub.io.rows import listed

log = logging.getLogger(__name__)

_NAMED_LEFT_OUT = 20  # files named in a warning: more than in an error, since nothing else names them


class PictureCollection(PictureFiles, Protocol):
    """The pictures of a split, wherever they are stored.

    names: (I,) of the pictures, each once. setting: the setting that says where they are, title: what it names, for
    messages and progress bars. identity: tells one collection from another; names are unique within it.
    """

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def setting(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def states(self) -> list[list[int]]:
        """For each picture, numbers that change when the picture does."""


class PictureReading:
    """The settings with which pictures are read.

    size, resize, crops, threads: of `Pictures`. augment: "vsepp", random crops and mirrors in training, or "none".
    unreadable: "stop" at files that cannot be decoded, or "leave_out" them and their captions. cache: the folder that
    remembers which files are whole; None is vsehub's folder in the user's caches (`io.files.cache_folder`). Raises
    InputError for other values.
    """

    def __init__(
        self,
        size: int = 224,
        resize: int = 256,
        crops: int = 1,
        augment: str = "none",
        unreadable: str = "stop",
        threads: int | None = None,
        cache: str | None = None,
    ):
        one_of("augment", augment, ("none", "vsepp"))
        one_of("unreadable", unreadable, ("stop", "leave_out"))
        self._pictures = partial(Pictures, size=size, resize=resize, crops=crops, threads=threads)
        self.threads = self._pictures([]).threads  # refuses bad sizes before the pictures are checked
        self._augment, self._unreadable, self.cache = augment, unreadable, cache
        cache_folder(cache)  # refuses a file

    def check(self, split: str, files: PictureCollection) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the pictures that can be decoded, ascending, and the hashes of their files.

        Raises InputError if others may not be left out, or if there are no others. Warns of equal files.
        """
        memory = memory_file(self.cache, files.identity)
        found = checked(files, files.names, files.states(), memory, files.title, self.threads)
        named = [f"{files.names[row]} ({reason})" for row, reason in sorted(found.damaged.items())]
        said = f"{len(named):,} of {len(files):,} files of the split {split!r} in {files.title} cannot be decoded"
        require(
            not named or self._unreadable == "leave_out",
            f"{files.setting}: {said}: {listed(named)}. Copy them again, or leave them and their captions out with "
            "data.unreadable=leave_out",
        )
        require(len(named) < len(files), f"{files.setting}: {said}, which is all: {listed(named)}. Copy them again")
        if named:
            log.warning("%s and are left out with their captions: %s", said, listed(named, most=_NAMED_LEFT_OUT))
        kept = np.delete(np.arange(len(files)), list(found.damaged))
        _warn_of_copies(split, files.names, kept, found.contents[kept])
        return kept, found.contents[kept]

    def pictures(self, split: str, files: PictureFiles, contents: np.ndarray) -> Pictures:
        """The pictures of a split. contents: (I,) hashes of their files."""
        return self._pictures(files, augments=self._augment == "vsepp" and split == "train", contents=contents)


def _warn_of_copies(split: str, names: Sequence[str], rows: np.ndarray, contents: np.ndarray) -> None:
    """Log a warning if files of a split have the same bytes: each is wrong for the captions of the others."""
    _, groups, counts = np.unique(contents, return_inverse=True, return_counts=True)
    copies = len(contents) - len(counts)
    if copies:
        first = rows[np.flatnonzero(groups == np.flatnonzero(counts > 1)[0])]
        log.warning(
            "%s of the %s pictures of %s are copies, byte for byte, of others under another name, and count as wrong "
            "for their captions. One picture: %s",
            *(f"{copies:,}", f"{len(contents):,}", split, listed([names[row] for row in first.tolist()])),
        )
