"""An extraction in chunks of a few hundred images, shared among processes; a killed extraction can continue."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vsehub.checks import InputError, fail, require
from vsehub.io.unfinished import UnfinishedWork

T = TypeVar("T")
_POLL_SECONDS = 0.2
_FEATURES = "features"  # the name of a chunk's array


class Chunk(NamedTuple):
    """Images `start` to `stop` - 1 of a split."""

    split: str
    start: int
    stop: int

    @property
    def name(self) -> str:
        """The name of the chunk's part of the unfinished work."""
        return f"{self.split}-{self.start:09d}"


def chunks_of(images: Mapping[str, int], size: int) -> list[Chunk]:
    """Chunks of `size` images, the last of a split smaller. images: the number of images of each split."""
    return [
        Chunk(split, start, min(start + size, count))
        for split, count in images.items()
        for start in range(0, count, size)
    ]


class Processes(NamedTuple):
    """This process among those that share the work.

    rank: its number, from 0. world: the number of processes. local: its rank on this machine, which selects the GPU.
    """

    rank: int = 0
    world: int = 1
    local: int = 0

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> "Processes":
        """From RANK, WORLD_SIZE and LOCAL_RANK; one process without these. Raises InputError for impossible values."""
        given = {name: environment.get(name) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
        try:
            rank, world = int(given["RANK"] or 0), int(given["WORLD_SIZE"] or 1)
            local = rank if given["LOCAL_RANK"] is None else int(given["LOCAL_RANK"])
        except ValueError as error:
            raise InputError(f"the environment has {given}; expected whole numbers, as torchrun sets them") from error
        require(
            0 <= rank < world and local >= 0 and (given["RANK"] is None) == (given["WORLD_SIZE"] is None),
            f"the environment has {given}; expected RANK from 0 to WORLD_SIZE - 1, as torchrun sets them, or neither",
        )
        return cls(rank, world, local)

    def own(self, work: Sequence[T]) -> list[T]:
        """The part of `work` that this process does; each piece belongs to one process."""
        return list(work[self.rank :: self.world])


class ChunkFiles(UnfinishedWork):
    """The features of the chunks that have been extracted, in a folder that several processes may write to."""

    def __init__(self, folder: str | Path, settings: Mapping[str, Any], overwrite: bool = False):
        super().__init__(folder, settings, overwrite)
        self.begin()  # before the first chunk is done, to show other commands that the folder is in use

    def done(self, chunk: Chunk) -> bool:
        """Whether the chunk has been extracted."""
        return self.path(chunk.name).is_file()

    def write(self, chunk: Chunk, features: np.ndarray) -> None:
        """Store a chunk's features (stop - start, ...), completely or not at all."""
        self.store(chunk.name, {_FEATURES: features})

    def read(self, chunk: Chunk) -> np.ndarray:
        """The chunk's features. Raises InputError if its file is absent or damaged; a damaged file is removed."""
        stored = self.load(chunk.name)
        features = None if stored is None else stored.get(_FEATURES)
        if features is None or features.ndim == 0 or len(features) != chunk.stop - chunk.start:
            path = self.path(chunk.name)
            path.unlink(missing_ok=True)
            fail(f"{path} was damaged and has been removed; run the same command again to extract its images")
        return features

    def wait(self, chunks: Sequence[Chunk], patience: float, say: Callable[[str], None]) -> None:
        """Wait until other processes have extracted all chunks.

        say: called with a message if there are chunks to wait for. Raises InputError after `patience` seconds without a
        new chunk.
        """
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
