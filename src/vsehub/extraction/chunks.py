"""Rows that are computed chunk by chunk; each chunk is a file, so that a killed command continues."""

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.encoders.precision import without_tf32
from vsehub.io.arrays import listed
from vsehub.io.files import atomic, read_object, write_json
from vsehub.io.progress import ahead, bar

SETTINGS = "settings.json"


class Work(NamedTuple):
    """Rows to compute: an array or a list, a function of some of them -> (b, ...), and the name of a row."""

    rows: Any
    function: Callable[[Any], Tensor]
    name_of: Callable[[int], str]


def begin(folder: Path, settings: Mapping[str, Any], overwrite: bool) -> None:
    """Keep the chunks in `folder` if they were computed with these settings; discard others.

    Raises InputError if there are chunks of other settings and `overwrite` is false.
    """
    wanted, before = json.loads(json.dumps(settings)), read_object(folder / SETTINGS)
    other = [key for key in wanted if before.get(key) != wanted[key]]
    require(
        overwrite or not before or not other,
        f"{folder} holds unfinished work with another {listed(other)}. Give that command again to finish it, another "
        "out=FOLDER, or overwrite=true to discard it",
    )
    if other:
        shutil.rmtree(folder, ignore_errors=True)
        write_json(folder / SETTINGS, wanted)


@torch.inference_mode()
def compute(folder: Path, name: str, work: Work, size: int, dtype: torch.dtype) -> list[Path]:
    """The files of all chunks of `size` rows, in order; chunks that are there are not computed again.

    name: begins the names of the files. Raises InputError naming rows whose result holds NaN, infinite values or only
    zeros.
    """
    paths = {start: folder / f"{name}-{start:09d}.npy" for start in range(0, len(work.rows), size)}
    missing = [start for start, path in paths.items() if not path.exists()]
    chunks = ahead(work.rows[start : start + size] for start in missing)
    with without_tf32():
        for start, chunk in zip(missing, bar(f"computing {name}", chunks, len(missing)), strict=True):
            result = np.ascontiguousarray(work.function(chunk).to(dtype).cpu())
            flat = result.reshape(len(result), -1)
            unusable = start + np.flatnonzero(~np.isfinite(flat).all(axis=1) | ~flat.any(axis=1))
            require(
                len(unusable) == 0,
                f"{name}: the results of {listed([work.name_of(row) for row in unusable.tolist()])} hold NaN, infinite "
                "values or only zeros. Look at these rows and at the weights; try dtype=float32",
            )
            with atomic(paths[start]) as file:
                np.save(file, result)
    return list(paths.values())


def join(chunks: Sequence[Path], rows: int, path: Path) -> None:
    """Write the arrays of files as one array (rows, ...), one chunk in memory at a time."""
    first = np.load(chunks[0])
    header = np.lib.format.header_data_from_array_1_0(first) | {"shape": (rows, *first.shape[1:])}
    with atomic(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for chunk in chunks:
            file.write(np.load(chunk).data)
