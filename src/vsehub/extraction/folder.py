"""The folder of an extraction: the files that data=precomp reads, and the manifest that shows they are complete."""

import hashlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from vsehub.checks import boolean, require, whole
from vsehub.data.sources import CaptionedImages
from vsehub.extraction.chunks import Chunk, ChunkFiles
from vsehub.io.files import atomic, read_object
from vsehub.io.records import EXTRACTION, checked_record
from vsehub.io.rows import RowErrors
from vsehub.io.unfinished import ENDING, SETTINGS, differing

MANIFEST, PARTS = "manifest.json", "parts"
PREFIXES = {"train": "train", "val": "dev", "test": "test"}
MOST_CAPTIONS = 5
IDS = "ids.txt"
_ENDINGS = ("ims.npy", "caps.txt", IDS)


def file_names(splits: Sequence[str]) -> list[str]:
    """The names of all files of the layout for these splits."""
    return [f"{PREFIXES[split]}_{ending}" for split in splits for ending in _ENDINGS]


def captions_each(splits: Mapping[str, CaptionedImages], wanted: int | None) -> int:
    """The number of captions kept per image; the layout requires the same number for all images.

    wanted: None takes the smallest number that any image has, at most 5. Raises InputError naming images with fewer.
    """
    if wanted is not None:
        whole("captions", wanted)
    counts = {split: np.bincount(loaded.image_index, minlength=len(loaded.images)) for split, loaded in splits.items()}
    least = min(int(count.min()) for count in counts.values())
    each = min(least, MOST_CAPTIONS) if wanted is None else wanted
    for split, count in counts.items():
        few = RowErrors(splits[split].name_of)
        few.add(0, count < max(each, 1))
        require(
            few.count == 0,
            f"captions: images of {split} with fewer than {max(each, 1)} captions: {few}; "
            + (f"give captions={least}, or null" if least else "take images without captions out of the data"),
        )
    return each


def kept_captions(loaded: CaptionedImages, each: int) -> list[str]:
    """The first `each` captions of every image, image by image, each on one line."""
    order = np.argsort(loaded.image_index, kind="stable")
    counts = np.bincount(loaded.image_index, minlength=len(loaded.images))
    firsts = np.cumsum(counts) - counts
    kept = [str(loaded.captions[t]) for t in order[(firsts[:, None] + np.arange(each)).ravel()]]
    # A line break would divide a caption in two.
    return [" ".join(one.split()) if "\n" in one or "\r" in one else one for one in kept]


def assemble(
    folder: Path, splits: Mapping[str, CaptionedImages], chunks: Sequence[Chunk], files: ChunkFiles, each: int
) -> dict[str, dict[str, Any]]:
    """Write the layout's files, each completely or not at all; returns {"bytes", "sha256"} of each by its name."""
    written = {}
    for split, loaded in splits.items():
        features, captions, ids = file_names([split])
        own = [chunk for chunk in chunks if chunk.split == split]
        written[features] = write_features(folder / features, own, files)
        written[captions] = write_lines(folder / captions, kept_captions(loaded, each))
        (folder / ids).unlink(missing_ok=True)
        if loaded.names is not None:
            written[ids] = write_lines(folder / ids, loaded.names)
    return written


class Hashed:
    """A file that is hashed while it is written."""

    def __init__(self, file: BinaryIO):
        self._file, self._digest, self._bytes = file, hashlib.sha256(), 0

    def write(self, data: bytes | memoryview) -> int:
        """Write and hash; returns the number of bytes."""
        self._digest.update(data)
        self._bytes += memoryview(data).nbytes
        return self._file.write(data)

    def facts(self) -> dict[str, Any]:
        """The file's "bytes" and "sha256"."""
        return {"bytes": self._bytes, "sha256": self._digest.hexdigest()}


def write_features(path: Path, chunks: Sequence[Chunk], files: ChunkFiles) -> dict[str, Any]:
    """Write one array of contiguous chunks, one chunk in memory at a time; returns the file's {"bytes", "sha256"}."""
    with atomic(path) as raw:
        file = Hashed(raw)
        for chunk in chunks:
            features = files.read(chunk)
            if chunk is chunks[0]:
                header, rows = np.lib.format.header_data_from_array_1_0(features), chunks[-1].stop - chunk.start
                np.lib.format.write_array_header_1_0(file, header | {"shape": (rows, *features.shape[1:])})
            file.write(np.ascontiguousarray(features).data)
        return file.facts()


def write_lines(path: Path, lines: Sequence[str]) -> dict[str, Any]:
    with atomic(path) as raw:
        file = Hashed(raw)
        file.write("".join(f"{line}\n" for line in lines).encode())
        return file.facts()


def finished(
    folder: Path,
    settings: Mapping[str, Any],
    names: Sequence[str],
    overwrite: bool = False,
    thoroughly: bool = False,
) -> bool:
    """Whether the folder holds the finished extraction of these settings, with unchanged files.

    names: of all files that it writes. overwrite: remove an earlier extraction and return False. thoroughly: compare
    the files' checksums, not only their sizes. Raises InputError if files have changed, or if the folder holds
    something else that must not be replaced.
    """
    require(folder.is_dir() or not folder.exists(), f"out: {folder} is a file; give out=FOLDER")
    boolean("overwrite", overwrite)
    boolean("verify", thoroughly)
    path = folder / MANIFEST
    if path.exists():
        manifest = read_object(path)
        require(
            {"schema", *EXTRACTION.keys} <= manifest.keys(),
            f"out: {path} is damaged, or no manifest of an extraction. Give another out=FOLDER, or remove it",
        )
        if not overwrite:
            hint = "Give another out=FOLDER, or overwrite=true to extract again"
            checked_record(manifest, EXTRACTION, f"out: {path}", hint)
            other = differing(settings, manifest["settings"])
            require(not other, f"out: {folder} holds another extraction (other {', '.join(other)}). {hint}")
            verify(folder, _written(path, manifest["files"], names), thoroughly)
            return True
    begun = (folder / PARTS / SETTINGS).exists()
    there = [name for name in (MANIFEST, *names) if (folder / name).exists()]
    require(
        begun or path.exists() or not there,
        f"out: {folder} holds {', '.join(there)}, and no {MANIFEST} of an extraction: vsehub extract did not write "
        "them. Give another out=FOLDER",
    )
    if overwrite:
        for name in there:
            (folder / name).unlink()
    return False


def _written(path: Path, files: dict[str, Any], names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The files of a manifest. Raises InputError unless they are those of `names`, with size and checksum."""
    optional = {name for name in names if name.endswith(IDS)}
    require(
        set(files) | optional == set(names)
        and all(isinstance(one, dict) and {"bytes", "sha256"} <= set(one) for one in files.values()),
        f"out: {path} is damaged: it does not name the files of this extraction with size and checksum. "
        "Give overwrite=true to extract again",
    )
    return files


def require_room(folder: Path, size: int) -> None:
    """Raise InputError unless the features' `size` bytes fit twice on the folder's disk: as chunks and as one file."""
    disk = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    kept = sum(path.stat().st_size for path in (folder / PARTS).glob(f"*{ENDING}"))
    free, needed = shutil.disk_usage(disk).free, 2 * size - kept
    require(
        needed < free,
        f"out: the features take {size / 1e9:.1f} GB, and as much again until they are put together, but the disk of "
        f"{disk} has {free / 1e9:.1f} GB free. Free room, or give another out, dtype=float16 or fewer regions",
    )


def verify(folder: Path, written: Mapping[str, Mapping[str, Any]], thoroughly: bool) -> None:
    """Raise InputError if a file is absent, or its size or, if `thoroughly`, its checksum has changed."""
    for name, facts in written.items():
        path = folder / name
        wrong = "is missing" if not path.is_file() else None
        if wrong is None and path.stat().st_size != facts["bytes"]:
            wrong = f"has {path.stat().st_size} bytes, not {facts['bytes']}"
        if wrong is None and thoroughly:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != facts["sha256"]:
                    wrong = "holds other bytes than were written (SHA-256)"
        require(wrong is None, f"{path} {wrong}; give overwrite=true to extract again")
