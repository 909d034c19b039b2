"""How a source of photos reads its pictures: their size and crops, and what happens to damaged ones."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

import numpy as np

from vsehub.checks import one_of, require
from vsehub.components import Component
from vsehub.data.photos.pictures import PictureFiles, Pictures, check_pictures, memory_file
from vsehub.io.files import cache_folder
from vsehub.io.rows import listed

log = logging.getLogger(__name__)

_NAMED_LEFT_OUT = 20  # files named in a warning: more than in an error, since no other message names these


class PictureCollection(PictureFiles, Protocol):
    """The pictures of a source or of a split, wherever they are stored.

    names: (I,) of the pictures, unique in the collection. setting: the setting with their address; title: of the
    collection, for messages and progress bars. identity: different for different collections.
    """

    @property
    def names(self) -> Sequence[str]: ...

    @property
    def setting(self) -> str: ...

    @property
    def title(self) -> str: ...

    @property
    def identity(self) -> str: ...

    def take(self, rows: np.ndarray) -> "PictureCollection":
        """The pictures of these rows."""

    def located(self, split: str) -> "PictureCollection":
        """The same pictures, after a check that their files exist.

        split: for messages. Raises InputError if files are missing.
        """

    def states(self) -> list[list[int]]:
        """Numbers for each picture that change whenever the picture changes."""


@dataclass(frozen=True)
class PictureSettings(Component):
    """The settings with which a source reads its pictures.

    size, resize, crops, threads: of `Pictures`. augment: "vsepp", random crops and mirrors in training, or "none".
    unreadable: "stop" at pictures that cannot be decoded, or "leave_out" them and their captions. uncaptioned: the same
    for pictures without any caption. cache: the folder that remembers which pictures are intact; None is vsehub's
    folder in the user's caches (`io.files.cache_folder`). Raises InputError for other values.
    """

    size: int = 224
    resize: int = 256
    crops: int = 1
    augment: str = "none"
    unreadable: str = "stop"
    uncaptioned: str = "stop"
    threads: int | None = None
    cache: str | None = None
    rebuilt = MappingProxyType({"cache": None})  # settings that a checkpoint does not decide

    def __post_init__(self) -> None:
        one_of("augment", self.augment, ("none", "vsepp"))
        one_of("unreadable", self.unreadable, ("stop", "leave_out"))
        one_of("uncaptioned", self.uncaptioned, ("stop", "leave_out"))
        self._pictures([])  # refuses bad sizes before the pictures are checked
        cache_folder(self.cache)  # refuses a file

    @property
    def workers(self) -> int:
        """The number of threads that decode pictures."""
        return self._pictures([]).threads

    @property
    def folder(self) -> Path:
        """The folder that remembers which pictures are intact."""
        return cache_folder(self.cache)

    def check(self, split: str, files: PictureCollection) -> tuple[np.ndarray, np.ndarray]:
        """The rows of the pictures that can be decoded, ascending, and the hashes of their files.

        Raises InputError if others may not be left out, or if there are no others. Warns of equal files.
        """
        found = check_pictures(
            files, files.names, files.states(), memory_file(self.folder, files.identity), files.title, self.workers
        )
        named = [f"{files.names[row]} ({reason})" for row, reason in sorted(found.damaged.items())]
        said = f"{len(named):,} of {len(files):,} files of the split {split!r} in {files.title} cannot be decoded"
        require(
            not named or self.unreadable == "leave_out",
            f"{files.setting}: {said}: {listed(named)}. Copy them again, or leave them and their captions out with "
            "data.pictures.unreadable=leave_out",
        )
        require(len(named) < len(files), f"{files.setting}: {said}, which is all: {listed(named)}. Copy them again")
        if named:
            log.warning("%s and are left out with their captions: %s", said, listed(named, most=_NAMED_LEFT_OUT))
        intact = np.delete(np.arange(len(files)), list(found.damaged))
        _warn_of_copies(split, files.names, intact, found.contents[intact])
        return intact, found.contents[intact]

    def opened(self, split: str, files: PictureFiles, contents: np.ndarray) -> Pictures:
        """The pictures of a split. contents: (I,) hashes of their files."""
        return self._pictures(files, self.augment == "vsepp" and split == "train", contents)

    def _pictures(self, files: PictureFiles, augments: bool = False, contents: np.ndarray | None = None) -> Pictures:
        return Pictures(files, self.size, self.resize, self.crops, augments, self.threads, contents)


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
