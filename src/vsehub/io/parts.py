"""What a long search has found so far, kept on disk, so that the same command goes on where it was killed."""

import hashlib
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import boolean, fail, require
from vsehub.io.arrays import DAMAGE, load_archive
from vsehub.io.files import atomic, remove_abandoned, write_json

log = logging.getLogger(__name__)

SETTINGS = "settings.json"
VERSION = 1  # of the parts and their settings
_EMPTY = 1024  # pieces without arrays that a part may have

Pieces = list[tuple[Tensor, ...]]


class Parts:
    """Named lists of tuples of tensors in a folder, each written atomically with the seconds that finding it took.

    folder: made when the first part is written. settings: JSON of all that the parts depend on. overwrite: parts of
    other settings are thrown away. Raises InputError where such lie there and are not to be, or the folder is of
    something else.
    """

    def __init__(self, folder: str | Path, settings: dict[str, Any], overwrite: bool = False):
        boolean("overwrite", overwrite)
        self.folder = Path(folder)
        self._settings = json.loads(json.dumps(settings))
        self._key = hashlib.sha256(json.dumps(self._settings, sort_keys=True).encode()).hexdigest()[:16]
        if self.folder.exists():
            self._take_over(overwrite)

    def get(self, name: str) -> tuple[Pieces, float] | None:
        """A part, on the CPU, and its seconds; None where it is absent or damaged."""
        path = self.folder / f"{name}.npz"
        if not path.is_file():
            return None
        try:
            stored = load_archive(path)
            pieces: list[list[Tensor]] = [[] for _ in range(_count(stored))]
            for label, array in stored.items():
                if "." in label:
                    pieces[int(label.split(".")[0])].append(torch.from_numpy(array))
            return [tuple(piece) for piece in pieces], float(stored["seconds"])
        except (*DAMAGE, KeyError, IndexError, TypeError) as error:
            log.warning("%s is damaged (%s): it is computed again", path, error)
            return None

    def put(self, name: str, pieces: Pieces, seconds: float) -> None:
        """Store a part."""
        if not (self.folder / SETTINGS).exists():
            write_json(self.folder / SETTINGS, {"version": VERSION, "key": self._key, "settings": self._settings})
        arrays = {f"{n}.{m}": tensor.cpu().numpy() for n, piece in enumerate(pieces) for m, tensor in enumerate(piece)}
        with atomic(self.folder / f"{name}.npz") as file:
            np.savez(file, pieces=len(pieces), seconds=seconds, **arrays)

    def remove(self) -> None:
        """Remove what was written, and the folder where nothing else is in it: the work is done."""
        if not self.folder.exists():
            return
        # The settings last: without them what is left would pass for somebody else's.
        for path in (*self.folder.glob("*.npz"), *self.folder.glob(".*.part"), self.folder / SETTINGS):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()

    def _take_over(self, overwrite: bool) -> None:
        remove_abandoned(self.folder / SETTINGS)
        if self.folder.is_dir() and not any(self.folder.iterdir()):
            return  # killed before the settings were written, or after they were removed
        if not self.folder.is_dir() or (any(self.folder.iterdir()) and not (self.folder / SETTINGS).is_file()):
            fail(f"{self.folder} is in the way: unfinished work is kept there. Give another out=FOLDER")
        try:
            found = json.loads((self.folder / SETTINGS).read_text())
            version, key, settings = found.get("version"), found["key"], dict(found["settings"])
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            version, key, settings = VERSION, None, {}
        if (version, key) == (VERSION, self._key):
            return
        require(
            overwrite or version == VERSION,
            f"{self.folder} holds unfinished work of version {version!r}; this vsehub goes on with version {VERSION}. "
            "Finish it with the vsehub that began it, give another out=FOLDER, or overwrite=true to throw it away",
        )
        differing = [name for name, value in self._settings.items() if settings.get(name) != value]
        require(
            overwrite,
            f"{self.folder} holds the unfinished work of another command (other {', '.join(differing) or 'settings'}). "
            "Give that command again to finish it, another out=FOLDER, or overwrite=true to throw it away",
        )
        self.remove()


def _count(stored: dict[str, np.ndarray]) -> int:
    """How many pieces a part has; ValueError where it says more than it has arrays, and more than a few are empty."""
    count = int(stored["pieces"])
    if not 0 <= count <= len(stored) + _EMPTY:
        raise ValueError(f"{len(stored)} arrays for {count} pieces")
    return count


def kept(parts: Parts | None, name: str, find: Callable[[], Pieces]) -> tuple[Pieces, float]:
    """The part `name` or, where it is not there, what `find` gives, stored under it; and the seconds of finding it."""
    found = None if parts is None else parts.get(name)
    if found is None:
        began = time.perf_counter()
        pieces = find()
        found = pieces, time.perf_counter() - began
        if parts is not None:
            parts.put(name, *found)
    return found
