"""Features as they are found: a file for every few hundred images, so that a killed extraction goes on."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vsehub.checks import boolean, fail, require
from vsehub.io.arrays import DAMAGE, load_array
from vsehub.io.files import atomic, write_json

SETTINGS = "settings.json"
VERSION = 1  # of the chunks and their settings
_POLL_SECONDS = 0.2
_SHOWN = 40  # settings that differ, and characters of one's name


class Chunk(NamedTuple):
    """Images start to stop - 1 of a split."""

    split: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """Of its file."""
        return f"{self.split}-{self.start:09d}.npy"


def chunks_of(images: Mapping[str, int], size: int) -> list[Chunk]:
    """Chunks of `size` images, the last of a split smaller; images: how many each split has."""
    return [
        Chunk(split, start, min(start + size, count))
        for split, count in images.items()
        for start in range(0, count, size)
    ]


class ChunkFiles:
    """The chunks found so far, in a folder that several processes may write to.

    folder: made here. settings: JSON of all that the features depend on. overwrite: chunks of other settings are thrown
    away. Raises InputError where such lie there and are not to be, or the folder is of something else.
    """

    def __init__(self, folder: Path, settings: Mapping[str, Any], overwrite: bool = False):
        boolean("overwrite", overwrite)
        self.folder = folder
        require(folder.is_dir() or not folder.exists(), f"{folder} is in the way: unfinished work is kept there")
        # Listed before the settings are read: another process writes them before its first chunk.
        there = folder.exists() and any(not path.name.startswith(".") for path in folder.iterdir())
        settings = json.loads(json.dumps(settings))
        if there:
            require(
                (folder / SETTINGS).is_file(),
                f"{folder} is in the way: unfinished work is kept there, and it holds something else. Give another out",
            )
            begun = content(folder / SETTINGS)
            other_version = bool(begun) and begun.get("version") != VERSION
            require(
                overwrite or not other_version,
                f"{folder} holds unfinished work of version {begun.get('version')!r}; this vsehub goes on with version "
                f"{VERSION}. Finish it with the vsehub that began it, give another out=FOLDER, or overwrite=true to "
                "throw it away",
            )
            found = differing(folder / SETTINGS, "settings", settings)
            if found or other_version:
                require(
                    overwrite,
                    f"{folder} holds the unfinished work of another command (other {', '.join(found)}). Give that "
                    "command again to finish it, another out=FOLDER, or overwrite=true to throw it away",
                )
                self.remove()
        if not (folder / SETTINGS).is_file():
            write_json(folder / SETTINGS, {"version": VERSION, "settings": settings})

    def done(self, chunk: Chunk) -> bool:
        """Whether the chunk has been found."""
        return (self.folder / chunk.name).is_file()

    def write(self, chunk: Chunk, features: np.ndarray) -> None:
        """Store a chunk's features (stop - start, ...), wholly or not at all."""
        with atomic(self.folder / chunk.name) as file:
            np.save(file, features)

    def read(self, chunk: Chunk) -> np.ndarray:
        """The chunk's features. Where its file is damaged, it is taken away and InputError says to go on."""
        path = self.folder / chunk.name
        try:
            features = load_array(path)
            if features.ndim > 0 and len(features) == chunk.stop - chunk.start:
                return features
        except DAMAGE:  # InputError is a ValueError
            pass
        path.unlink(missing_ok=True)
        fail(f"{path} was damaged and has been removed; give the same command again to extract its images anew")

    def wait(self, chunks: Sequence[Chunk], patience: float, say: Callable[[str], None]) -> None:
        """Return when other processes have found all chunks; InputError after `patience` seconds without a new one."""
        missing, since = [one for one in chunks if not self.done(one)], time.monotonic()
        if missing:
            say(f"waiting for {len(missing)} chunks of other processes")
        while missing:
            time.sleep(_POLL_SECONDS)
            left = [one for one in missing if not self.done(one)]
            since = since if len(left) == len(missing) else time.monotonic()
            missing = left
            if missing and time.monotonic() - since > patience:
                fail(
                    f"for {patience:g} seconds no other process has finished a chunk, and {len(missing)} are missing, "
                    f"first {missing[0].name}. What is done is kept: give the same command again in every process"
                )

    def remove(self) -> None:
        """Remove what was written, and the folder where nothing else is in it."""
        # The settings last: without them what is left would pass for somebody else's.
        for path in (*self.folder.glob("*-?????????.npy"), *self.folder.glob(".*.part"), self.folder / SETTINGS):
            path.unlink(missing_ok=True)
        if not any(self.folder.iterdir()):
            self.folder.rmdir()


def differing(path: Path, key: str, settings: Mapping[str, Any]) -> list[str]:
    """The first names of settings that are others in the JSON file `path` under `key`; all, where it cannot be read."""
    try:
        found = dict(content(path)[key])
    except (ValueError, KeyError, TypeError):
        return list(settings)
    return [name[:_SHOWN] for name in {**settings, **found} if settings.get(name) != found.get(name)][:_SHOWN]


def content(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty one where it holds none."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
