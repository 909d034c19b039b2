"""Vectors in folders of shards, `.npy` or `.parquet`, with the ids and captions of clip-retrieval's layout."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from vsehub.checks import InputError, existing, fail, require
from vsehub.data.vectors.formats import StoredMatrix, read_npy
from vsehub.data.vectors.parquet import read_parquet, read_texts
from vsehub.data.vectors.paths import SHARDS
from vsehub.io.arrays import MappedRows, ScratchRows
from vsehub.io.rows import listed

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

IDS = ("image_path", "key", "url")  # columns of the metadata whose entries may serve as ids, the first one preferred
LABELS = "caption"
_READERS = dict(zip(SHARDS, (read_npy, read_parquet), strict=True))


def described_by(shard: Path, metadata: Path) -> Path:
    """The metadata of a shard in clip-retrieval's layout: metadata_7.parquet for img_emb_7.npy."""
    return metadata / f"metadata_{shard.stem.rpartition('_')[2]}.parquet"


def read_shards(
    folder: Path, paths: Sequence[Path], key: str | None, metadata: Path | None, skip_unreadable: bool
) -> StoredMatrix:
    """The rows of the shards `paths` of a folder, in their order, as one matrix.

    .npy shards stay mapped, .parquet shards are unpacked into one scratch file. key: the column of .parquet shards.
    metadata: the folder of clip-retrieval's metadata; ids are its first column among `IDS` that has a different entry
    for each row, if there is one, labels its captions. skip_unreadable: leave out shards that cannot be read, with a
    warning. Raises InputError if a shard cannot be read, or if shards differ in dimension or type.
    """
    found: list[Path] = []
    left_out: list[Path] = []
    rows_of: list[int] = []
    ids: list[list[str] | None] = []
    texts: list[dict[str, pa.ChunkedArray]] = []
    alike: tuple[int, torch.dtype] | None = None
    rows: MappedRows | ScratchRows = MappedRows()
    with ExitStack() as stack:
        for path in paths:
            try:
                stored = _READERS[path.suffix.lower()](path, key)
                own = {} if metadata is None else _texts(path, len(stored.array), described_by(path, metadata))
            except InputError as error:
                if not skip_unreadable:
                    raise
                log.warning("%s is left out, with all its rows: %s", path, error)
                left_out.append(path)
                continue
            kind = stored.array.shape[1], stored.dtype
            if alike is None:
                alike = kind
                if path.suffix.lower() != ".npy":
                    rows = stack.enter_context(ScratchRows(stored.array.dtype, f"the numbers of {folder}"))
            require(
                kind == alike,
                f"{path} holds rows of {_said(*kind)}, but {found[0] if found else path} of {_said(*alike)}. Shards of "
                "a folder must be alike: write one of them again, or move it to another folder",
            )
            assert isinstance(stored.array, np.memmap)  # of the file, or of a scratch file
            rows.add(stored.array)
            found.append(path)
            rows_of.append(len(stored.array))
            ids.append(stored.ids)
            texts.append(own)
        if alike is None:
            fail(f"{folder}: none of its {len(paths)} shards can be read. Copy, download or write them again")
        array = rows.array(alike[0]) if isinstance(rows, ScratchRows) else rows
    named = _ids_of_shards(found, ids) or _distinct_ids(folder, texts)
    captions = _column(texts, LABELS)
    return StoredMatrix(
        array,
        alike[1],
        named,
        None if captions is None else captions.to_pylist(),
        tuple(left_out),
        tuple(zip(found, rows_of, strict=True)),
    )


def _said(dim: int, dtype: torch.dtype) -> str:
    return f"{dim} {str(dtype).removeprefix('torch.')} numbers"


def _ids_of_shards(shards: list[Path], ids: list[list[str] | None]) -> list[str] | None:
    """The ids of the shards themselves, which all or none of them must have."""
    with_ids = [one for one in ids if one is not None]
    if not with_ids:
        return None
    lacking = [shard for shard, one in zip(shards, ids, strict=True) if one is None]
    require(
        not lacking,
        f"{listed([shard.name for shard in lacking])} of {shards[0].parent} have no ids, other shards do. Give all "
        "shards the column id, or none",
    )
    return list(chain.from_iterable(with_ids))


def _texts(shard: Path, rows: int, metadata: Path) -> "dict[str, pa.ChunkedArray]":
    """The ids and captions of a shard's rows, by column."""
    existing("metadata", metadata, f"It describes the rows of {shard}: copy, download or write it again")
    texts = read_texts(metadata, (*IDS, LABELS))
    count = len(next(iter(texts.values())))
    require(
        count == rows,
        f"{shard} has {rows} rows, but its metadata {metadata} {count}; expected one row for each vector. Copy, "
        "download or write them again",
    )
    return texts


def _column(texts: "list[dict[str, pa.ChunkedArray]]", name: str) -> "pa.ChunkedArray | None":
    """A column of all shards; None if some lack it or an entry of it."""
    import pyarrow as pa

    if not texts or not all(name in own and not own[name].null_count for own in texts):
        return None
    return pa.chunked_array([chunk for own in texts for chunk in own[name].chunks], pa.string())


def _distinct_ids(folder: Path, texts: "list[dict[str, pa.ChunkedArray]]") -> list[str] | None:
    """The first column among `IDS` with a different entry in each row; None, with a warning, if there is none."""
    import pyarrow.compute as pc

    for name in IDS:
        column = _column(texts, name)
        if column is not None and pc.count_distinct(column).as_py() == len(column):
            ids: list[str] = column.to_pylist()
            return ids
    if any(texts):
        log.warning(
            "%s: no column of its metadata (%s) has a different entry in each row: the rows have no ids",
            folder,
            ", ".join(IDS),
        )
    return None
