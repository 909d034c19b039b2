"""The folder that an extraction fills: finished, begun, or somebody else's."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from vsehub.checks import boolean, require
from vsehub.extraction.chunks import SETTINGS, content, differing
from vsehub.extraction.layout import IDS, file_names, verify
from vsehub.io.records import EXTRACTION

MANIFEST, PARTS = "manifest.json", "parts"
_AGAIN = "Give overwrite=true to extract again"


def finished(
    folder: Path,
    settings: Mapping[str, Any],
    splits: Sequence[str],
    overwrite: bool = False,
    thoroughly: bool = False,
) -> bool:
    """Whether the folder holds the extraction of these settings, its files as they were written.

    overwrite: then there is none, and an earlier one is removed. thoroughly: read the files and compare checksums.
    Raises InputError where files have changed, and where the folder holds something else that is not to be replaced.
    """
    require(folder.is_dir() or not folder.exists(), f"out: {folder} is a file; give out=FOLDER")
    boolean("overwrite", overwrite)
    boolean("verify", thoroughly)
    path = folder / MANIFEST
    if path.exists():
        manifest, other = content(path), differing(path, "settings", settings)
        require(
            {"schema", "settings", "files"} <= manifest.keys(),
            f"out: {path} is damaged, or no manifest of an extraction. Give another out=FOLDER, or remove it",
        )
        require(
            overwrite or manifest["schema"] == EXTRACTION.version,
            f"out: {path} is of schema {manifest['schema']!r}; this vsehub reads schema {EXTRACTION.version}. Use the "
            "vsehub that wrote it, give another out=FOLDER, or overwrite=true to extract again",
        )
        if not other and not overwrite:
            verify(folder, _written(path, manifest, splits), thoroughly)
            return True
        require(
            overwrite,
            f"out: {folder} holds another extraction (other {', '.join(other)}). Give another out=FOLDER, or "
            "overwrite=true to replace it",
        )
    begun = (folder / PARTS / SETTINGS).exists()
    there = [name for name in (MANIFEST, *file_names(splits)) if (folder / name).exists()]
    require(
        begun or path.exists() or not there,
        f"out: {folder} holds {', '.join(there)}, and no {MANIFEST} of an extraction: vsehub extract did not write "
        "them. Give another out=FOLDER",
    )
    if overwrite:
        for name in there:
            (folder / name).unlink()
    return False


def _written(path: Path, manifest: Mapping[str, Any], splits: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The files of a manifest; InputError unless they are those of the splits, each with its size and checksum."""
    files = manifest.get("files")
    names = set(files) if isinstance(files, dict) else set()
    optional = {name for name in file_names(splits) if name.endswith(IDS)}
    require(
        names | optional == set(file_names(splits))
        and all(isinstance(one, dict) and {"bytes", "sha256"} <= set(one) for one in files.values()),
        f"out: {path} is damaged: it does not name the files of the splits {', '.join(splits)} with size and checksum. "
        + _AGAIN,
    )
    return files


def require_room(folder: Path, size: int) -> None:
    """InputError unless the features' `size` bytes, in parts and then whole, find room on the folder's disk."""
    here = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    kept = sum(path.stat().st_size for path in (folder / PARTS).glob("*.npy"))
    free, needed = shutil.disk_usage(here).free, 2 * size - kept
    require(
        needed < free,
        f"out: the features take {size / 1e9:.1f} GB, and as much again until they are put together, but the disk of "
        f"{here} has {free / 1e9:.1f} GB free. Free room, or give another out, dtype=float16 or fewer regions",
    )
