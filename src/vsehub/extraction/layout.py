"""Chunks, captions and names as the files that data=precomp reads."""

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vsehub.checks import InputError, require, whole
from vsehub.data.sources import CaptionedImages
from vsehub.extraction.chunks import Chunk, ChunkFiles
from vsehub.io.files import atomic

PREFIXES = {"train": "train", "val": "dev", "test": "test"}
MOST_CAPTIONS = 5
IDS = "ids.txt"
_ENDINGS = ("ims.npy", "caps.txt", IDS)


def file_names(splits: Sequence[str]) -> list[str]:
    """All files that the layout has for these splits."""
    return [f"{PREFIXES[split]}_{ending}" for split in splits for ending in _ENDINGS]


def captions_each(splits: Mapping[str, CaptionedImages], wanted: int | None) -> int:
    """How many captions of every image are kept: the layout wants equally many of each.

    wanted: None is the least number that any image has, at most 5. Raises InputError naming images that have fewer.
    """
    if wanted is not None:
        whole("captions", wanted)
    counts = {split: np.bincount(loaded.image_index, minlength=len(loaded.images)) for split, loaded in splits.items()}
    least = min(int(count.min()) for count in counts.values())
    each = min(least, MOST_CAPTIONS) if wanted is None else wanted
    for split, count in counts.items():
        few, names = np.flatnonzero(count < max(each, 1)), splits[split].names
        named = [str(row) if names is None else names[row] for row in few[:5]]
        require(
            len(few) == 0,
            f"captions: {len(few)} images of {split} have fewer than {max(each, 1)}, first {', '.join(named)}; "
            + (f"give captions={least}, or null" if least else "take images without captions out of the data"),
        )
    return each


def kept_captions(loaded: CaptionedImages, each: int) -> list[str]:
    """The first `each` captions of every image, image after image, each on one line."""
    order = np.argsort(loaded.image_index, kind="stable")
    counts = np.bincount(loaded.image_index, minlength=len(loaded.images))
    firsts = np.cumsum(counts) - counts
    kept = [loaded.captions[t] for t in order[(firsts[:, None] + np.arange(each)).ravel()]]
    # A break within a caption would make it two.
    return [" ".join(one.split()) if "\n" in one or "\r" in one else one for one in kept]


def assemble(
    folder: Path, splits: Mapping[str, CaptionedImages], chunks: Sequence[Chunk], files: ChunkFiles, each: int
) -> dict[str, dict[str, Any]]:
    """Write the layout's files, each wholly or not at all; their {"bytes", "sha256"} by name."""
    written = {}
    for split, loaded in splits.items():
        features, captions, ids = file_names([split])
        own = [chunk for chunk in chunks if chunk.split == split]
        written[features] = _write_features(folder / features, own, files)
        written[captions] = _write_lines(folder / captions, kept_captions(loaded, each))
        (folder / ids).unlink(missing_ok=True)
        if loaded.names is not None:
            written[ids] = _write_lines(folder / ids, loaded.names)
    return written


class _Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO):
        self._file, self._digest, self._bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> int:
        self._digest.update(data)
        self._bytes += memoryview(data).nbytes
        return self._file.write(data)

    def facts(self) -> dict[str, Any]:
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}


def _write_features(path: Path, chunks: Sequence[Chunk], files: ChunkFiles) -> dict[str, Any]:
    """One array of all chunks, of which one is in memory at a time."""
    with atomic(path) as raw:
        file = _Hashed(raw)
        for chunk in chunks:
            features = files.read(chunk)
            if chunk.start == 0:
                header = np.lib.format.header_data_from_array_1_0(features)
                np.lib.format.write_array_header_1_0(file, header | {"shape": (chunks[-1].stop, *features.shape[1:])})
            file.write(np.ascontiguousarray(features).data)
        return file.facts()


def _write_lines(path: Path, lines: Sequence[str]) -> dict[str, Any]:
    with atomic(path) as raw:
        file = _Hashed(raw)
        file.write("".join(f"{line}\n" for line in lines).encode())
        return file.facts()


def verify(folder: Path, written: Mapping[str, Mapping[str, Any]], thoroughly: bool) -> None:
    """InputError where a file is absent, of another size or, looked at thoroughly, of other bytes than were written."""
    for name, facts in written.items():
        path = folder / name
        wrong = "is missing" if not path.is_file() else None
        if wrong is None and path.stat().st_size != facts["bytes"]:
            wrong = f"has {path.stat().st_size} bytes, not {facts['bytes']}"
        if wrong is None and thoroughly:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != facts["sha256"]:
                    wrong = "holds other bytes than were written (SHA-256)"
        if wrong is not None:
            raise InputError(f"{path} {wrong}; give overwrite=true to extract again")
