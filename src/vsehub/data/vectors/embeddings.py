"""Vectors from files, arrays and tensors, read in float32 blocks, and the checks that a search needs."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import boolean, require
from vsehub.data.truth import require_distinct_ids
from vsehub.data.vectors.paths import Stamps, fetch, is_folder, require_vectors, shards, split_path, stamps
from vsehub.data.vectors.readers import Shards, matrix_dtype, read_file, read_metadata
from vsehub.io.address import is_uri, masked
from vsehub.io.arrays import listed, refuse_unusable
from vsehub.io.files import stored_digest
from vsehub.io.progress import bar

_BLOCK_BYTES = 16 << 20
# Norms between these are exact in float32, whose squares neither overflow nor underflow; others are refused.
_SMALL, _LARGE = 1e-15, 1e15


@dataclass(frozen=True)
class Origin:
    """The origin of vectors.

    path: the file, folder or URI, with `::key` if it was given; None for an array. stamps: stamps of the
    files, taken before they were opened.
    """

    path: str | None = None
    stamps: Stamps = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class VectorFile:
    """n vectors of D dimensions, mapped from a file or in memory, read block by block as float32.

    name: "queries" or "items", for messages. source: (n, D) numbers. dtype: the type of the numbers. ids: n strings, or
    None. labels: n captions, or None. normalize: True divides each row by its norm; False and None leave the rows
    unchanged, but with None `check_vectors` refuses rows that are not unit vectors.
    """

    name: str
    source: np.ndarray | Tensor | Shards
    dtype: torch.dtype
    ids: list[str] | None = None
    labels: list[str] | None = None
    normalize: bool | None = None
    origin: Origin = field(default_factory=Origin)

    def __post_init__(self) -> None:
        boolean("normalize", self.normalize, or_none=True)

    def __len__(self) -> int:
        return len(self.source)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return tuple(self.source.shape)

    def __str__(self) -> str:
        return f"{self.name} ({self.origin.path})" if self.origin.path else self.name

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1: (stop - start, D) float32, contiguous, a copy.

        Rows of a tensor are on its device, others on the CPU.
        """
        return self._ready(self.source[start:stop])

    def take(self, indices: Tensor | np.ndarray | list[int]) -> Tensor:
        """The rows `indices` (b,), in their order: (b, D) float32."""
        rows = torch.as_tensor(indices, dtype=torch.int64)
        source = self.source
        return self._ready(source[rows.to(source.device)] if isinstance(source, Tensor) else source[rows.cpu().numpy()])

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """(first row, rows (b, D) float32) over all rows in order, `rows` at a time; None: 16 MB at a time."""
        step = max(1, _BLOCK_BYTES // (4 * self.shape[1])) if rows is None else rows
        for first in range(0, len(self), step):
            yield first, self.rows(first, min(first + step, len(self)))

    def with_ids(self, ids: list[str]) -> "VectorFile":
        """The same vectors with other ids. Raises InputError unless there is exactly one id per row, all different."""
        require(len(ids) == len(self), f"{self} has {len(self)} rows but {len(ids)} ids; expected one id per row")
        require_distinct_ids(f"the ids of {self}", ids)
        return replace(self, ids=ids)

    def fingerprint(self) -> str:
        """A short hash of shape, type, ids and all rows as they are stored, before normalisation.

        The hash of a file's rows is stored until the file changes.
        """
        path, stamps = self.origin.path, self.origin.stamps
        name = f"vectors of {path} in {[*map(str, stamps)]}"
        rows = stored_digest(name, list(stamps.items()), self._rows_digest) if stamps else self._rows_digest()
        ids = json.dumps(self.ids)
        return hashlib.blake2b(f"{self.shape} {self.dtype} {ids} {rows}".encode()).hexdigest()[:16]

    def _rows_digest(self) -> str:
        digest = hashlib.blake2b(digest_size=32)
        for _, rows in replace(self, normalize=False).blocks():
            digest.update(rows.cpu().numpy().data)
        return digest.hexdigest()

    def _ready(self, part: np.ndarray | Tensor) -> Tensor:
        if isinstance(part, Tensor):
            rows = part.detach().to(torch.float32, copy=True).contiguous()
        else:
            rows = torch.from_numpy(np.array(part, part.dtype.newbyteorder("="), order="C")).float()
        # `check_vectors` refuses rows whose norms are 0 or infinite.
        return rows.div_(row_norms(rows).float()[:, None]) if self.normalize else rows


def open_vectors(
    path: str | Path | np.ndarray | Tensor, name: str = "queries", normalize: bool | None = None
) -> VectorFile:
    """Vectors from a file, a folder of shards, a URI, a numpy array or a torch tensor: (n, D) floats, int8 or uint8.

    path: a .npy, .npz, .safetensors, .parquet, .csv, .tsv, .jsonl, .pt or .pth file; a folder of .npy or .parquet
    shards, which are read in the natural order of their names; a folder in clip-retrieval's layout, where
    `folder::img_emb` names a side; or the URI of one of these, which is fetched once. `file.npz::key` names one of
    several arrays, or in a .parquet or .jsonl one of several columns of lists. Ids come from the array `ids` of a .npz,
    the column `id` of a .parquet, .csv, .tsv or .jsonl, or from clip-retrieval's metadata, whose captions become
    labels. normalize: see `VectorFile`. .npy, .safetensors and .pt files are mapped, others are read into memory.
    Raises InputError if a file is absent, damaged or of another format, if shards differ in dimension or type, or if
    numbers are of another type.
    """
    if isinstance(path, np.ndarray | Tensor):
        return VectorFile(name, path, matrix_dtype(name, path), normalize=normalize)
    path = str(path)
    where, key = split_path(path)
    require_vectors(name, where)
    files, metadata_files = [where], list[str]()
    if is_folder(where):
        files, metadata_files, key = shards(name, where, key)
    local = [fetch(name, file) if is_uri(file) else Path(file) for file in [*files, *metadata_files]]
    before_reading = stamps(path.absolute() for path in local)
    paths, metadata = local[: len(files)], local[len(files) :]
    source: Shards | np.ndarray | Tensor
    labels = None
    if is_folder(where):
        source = Shards(paths, key)
        ids, labels = read_metadata(metadata, source.counts) if metadata else (source.ids or None, None)
    else:
        source, ids = read_file(paths[0], key)
    dtype = matrix_dtype(masked(path), source)
    vectors = VectorFile(name, source, dtype, None, labels, normalize, Origin(masked(path), before_reading))
    return vectors if ids is None else vectors.with_ids(ids)


def row_norms(rows: Tensor) -> Tensor:
    """Norms of rows (b, D) float32: (b,) float64; 0 below 1e-15 and infinite above 1e15."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1).double()
    return norms.masked_fill(norms < _SMALL, 0).masked_fill(norms > _LARGE, torch.inf)


def check_vectors(vectors: VectorFile) -> dict[str, float]:
    """Read all rows once, block by block, and check their norms.

    Returns the smallest norm "least", the largest "most", and the share "unit_share" of norms within "tolerance" of 1:
    1e-3, in half precision 1e-2. Raises InputError if rows hold NaN, infinite values or only zeros, or if
    `vectors.normalize` is None and rows are not unit vectors.
    """
    tolerance = 1e-2 if vectors.dtype in (torch.float16, torch.bfloat16) else 1e-3
    blocks = bar(f"checking {vectors}", replace(vectors, normalize=False).blocks())
    norms = torch.cat([row_norms(rows).cpu() for _, rows in blocks]).numpy()
    off = np.flatnonzero(abs(norms - 1) > tolerance)
    refuse_unusable(
        f"{vectors}: of {len(vectors)} rows as float32, counted from 0:",
        norms,
        "Embed what they stand for again, or leave these rows out on both sides",
    )
    least, most = norms.min().item(), norms.max().item()
    off_rows = f"all {len(off):,}" if len(off) == len(vectors) else f"rows {listed(off)}"
    require(
        vectors.normalize is not None or len(off) == 0,
        f"{vectors}: the norms of the rows lie between {least:.4g} and {most:.4g}; {off_rows} differ from 1 by more "
        f"than {tolerance:g} (rows are counted from 0). Set normalize=true (in Python normalize=True) to divide each "
        "row by its norm (cosine), or false to take the inner products",
    )
    return {"least": least, "most": most, "unit_share": 1 - len(off) / len(vectors), "tolerance": tolerance}


def require_same_dimension(first: VectorFile, second: VectorFile) -> None:
    """Raise InputError unless both have the same dimension."""
    require(
        first.shape[1] == second.shape[1],
        f"the vectors are not of one space: {first}: {first.shape[0]} rows of {first.shape[1]} numbers; {second}: "
        f"{second.shape[0]} rows of {second.shape[1]} numbers. Give vectors of the same model, one vector per row",
    )
