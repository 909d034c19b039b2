"""Vectors from files, arrays and tensors, read in float32 blocks, and the checks that a search needs."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, boolean, require
from vsehub.data.truth import distinct_ids
from vsehub.data.vectors.delimited import read_delimited
from vsehub.data.vectors.folders import described_by, read_shards
from vsehub.data.vectors.formats import StoredMatrix, checked_kind, read_npy, read_npz, read_safetensors
from vsehub.data.vectors.lists import read_jsonl
from vsehub.data.vectors.parquet import read_parquet
from vsehub.data.vectors.paths import (
    METADATA,
    SUFFIXES,
    Stamps,
    chosen_side,
    require_vectors,
    shard_paths,
    side_folders,
    split_path,
    stamps,
    suffix_of,
)
from vsehub.data.vectors.remote import RemoteRows, fetch, in_place
from vsehub.data.vectors.tensors import read_tensors
from vsehub.io.address import Address, is_uri
from vsehub.io.arrays import MappedRows
from vsehub.io.progress import byte_bar
from vsehub.io.rows import RowErrors, UnusableRows

READERS = dict(
    zip(
        SUFFIXES,
        (read_npy, read_npz, read_safetensors, read_parquet, read_delimited, read_delimited, read_jsonl, read_tensors,
         read_tensors),
        strict=True,
    )
)  # fmt: skip
_BLOCK_BYTES = 16 << 20
# Norms between these are exact in float32: their squares neither overflow nor underflow.
_SMALL, _LARGE = 1e-15, 1e15
UNIT = 1e-3  # a norm is 1 within this


@dataclass(frozen=True)
class Origin:
    """The origin of vectors.

    path: the file, folder or URI, with `::key` if it was given; None for an array. stamps: of the files, taken before
    they were opened. left_out: shards that could not be read. files: (address, rows) of each file that the rows lie in,
    in order, any of which `open_vectors` opens; None for an array.
    """

    path: str | None = None
    stamps: Stamps = field(default_factory=dict)
    left_out: tuple[Path, ...] = ()
    files: tuple[tuple[str, int], ...] | None = None


@dataclass(frozen=True, eq=False)
class VectorFile:
    """n vectors of D dimensions, mapped from a file or in memory, read block by block as float32.

    name: "queries" or "items", for messages. source: (n, D) numbers, bfloat16 from a file as int16 bits. dtype: the
    type of the numbers. ids: n strings, or None. labels: n captions, or None. normalize: True divides each row by its
    norm; False and None leave the rows unchanged, but with None `look_through` refuses rows that are not unit vectors.
    """

    name: str
    source: np.ndarray | Tensor | MappedRows | RemoteRows
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

        Rows of a tensor are on its device, others on the CPU. Raises InputError if the range exceeds the rows.
        """
        require(0 <= start <= stop <= len(self), f"rows {start} to {stop} of {self} were asked for; it has {len(self)}")
        return self._ready(self.source[start:stop])

    def take(self, indices: Tensor | np.ndarray | list[int]) -> Tensor:
        """The rows `indices` (b,), in their order: (b, D) float32. Raises InputError if one is out of range."""
        indices = torch.as_tensor(indices)
        whole = indices.numel() == 0 or not (indices.is_floating_point() or indices.dtype == torch.bool)
        require(
            indices.ndim == 1 and whole and bool(((indices >= 0) & (indices < len(self))).all()),
            f"rows of {self} were asked for by {indices.dtype} indices {tuple(indices.shape)}; expected a list of "
            f"whole numbers from 0 to {len(self) - 1}",
        )
        if isinstance(self.source, Tensor):
            return self._ready(self.source[indices.to(self.source.device, torch.int64)])
        return self._ready(self.source[indices.to("cpu", torch.int64).numpy()])

    def blocks(self, rows: int | None = None) -> Iterator[tuple[int, Tensor]]:
        """(first row, rows (b, D) float32) over all rows in order, `rows` at a time; None: 16 MB at a time."""
        step = max(1, _BLOCK_BYTES // (4 * self.shape[1])) if rows is None else rows
        for first in range(0, len(self), step):
            yield first, self.rows(first, min(first + step, len(self)))

    def with_ids(self, ids: list[str]) -> "VectorFile":
        """The same vectors with other ids. Raises InputError unless there is exactly one id per row, all different."""
        require(len(ids) == len(self), f"{self} has {len(self)} rows but {len(ids)} ids; expected one id per row")
        distinct_ids(f"the ids of {self}", ids)
        return replace(self, ids=ids)

    def fingerprint(self, whole: bool = False) -> str:
        """A short hash of shape, type, ids and a sample of the rows as they are stored, before normalisation.

        whole: hash all rows, which are read once.
        """
        digest = hashlib.sha256(repr((self.shape, str(self.dtype))).encode())
        digest.update("\n".join(self.ids or ()).encode())
        sample = np.linspace(0, len(self) - 1, num=min(len(self), 64), dtype=int)
        stored = replace(self, normalize=False)
        for rows in (block for _, block in stored.blocks()) if whole else [stored.take(sample)]:
            digest.update(rows.cpu().numpy().tobytes())
        return digest.hexdigest()[:16]

    def _ready(self, part: np.ndarray | Tensor) -> Tensor:
        if isinstance(part, Tensor):
            rows = part.detach().to(torch.float32, copy=True).contiguous()
        else:
            native = np.array(part, dtype=part.dtype.newbyteorder("="), order="C")
            rows = torch.from_numpy(native).view(self.dtype).float()
        return normalized(rows) if self.normalize else rows


def open_vectors(
    path: str | Path | np.ndarray | Tensor,
    name: str = "queries",
    key: str | None = None,
    normalize: bool | None = None,
    skip_unreadable: bool = False,
    fetched: bool = True,
) -> VectorFile:
    """Vectors from a file, a folder of shards, a URI, a numpy array or a torch tensor: (n, D) floats, int8 or uint8.

    path: a .npy, .npz, .safetensors, .parquet, .csv, .tsv, .jsonl, .pt or .pth file; a folder of .npy or .parquet
    shards, which are read in the natural order of their names; a folder in clip-retrieval's layout, of which
    `folder::img_emb` names a side; or the URI of one of these, which is fetched once. `file.npz::key` names one of
    several arrays (in a .parquet, .jsonl or .csv, a column of lists), as `key` does. Ids come from the array `ids` of a
    .npz, the column `id` of a .parquet, .csv, .tsv or .jsonl, or from clip-retrieval's metadata, whose captions become
    labels. normalize:
    see `VectorFile`. skip_unreadable: leave out shards that cannot be read, with a warning. fetched: whether .npy files
    behind a URI are fetched like other files; otherwise only the requested rows are read, each time. Files are
    mapped, not read; those that cannot be (.parquet, .csv, .tsv, .jsonl, compressed .npz) are unpacked once into an
    unnamed file in the temporary folder. Raises InputError if a file is absent, damaged or of another format, if shards
    differ in dimension or type, or if numbers are of another type.
    """
    if isinstance(path, np.ndarray | Tensor):
        require(key is None, f"{name}: key is {key!r} but an array was given; a key chooses among the arrays of a file")
        dtype = checked_kind(name, tuple(path.shape), str(path.dtype).removeprefix("torch."))
        return VectorFile(name, path, dtype, normalize=normalize)
    path = Address(str(path)) if is_uri(str(path)) else path
    where, inside = split_path(str(path))
    require(
        inside is None or key in (None, inside), f"{name}: {path} names the array {inside!r}, key {key!r}; give one"
    )
    require_vectors(name, where)
    label = str(path) if key is None or inside is not None else f"{path}::{key}"
    key = inside if key is None else key
    remote = in_place(name, where) if is_uri(where) and not fetched and key is None else None
    if remote is not None:
        folder = "" if len(remote.shards) == 1 and suffix_of(where) == ".npy" else f"{where.rstrip('/')}/"
        files = tuple((f"{folder}{file}" if folder else where, rows) for file, rows in remote.shards)
        dtype = checked_kind(label, remote.shape, remote.dtype.name)
        return VectorFile(name, remote, dtype, normalize=normalize, origin=Origin(label, files=files))
    local = fetch(name, where, key) if is_uri(where) else Path(where)
    try:
        stored, taken = _stored(name, local, key, skip_unreadable)
    except InputError as error:
        if not is_uri(where):
            raise
        raise InputError(f"{error} (fetched from {where})") from error
    origin = Origin(label, taken, stored.left_out, _addresses(where, key, local, stored))
    vectors = VectorFile(name, stored.array, stored.dtype, None, stored.labels, normalize, origin)
    return vectors if stored.ids is None else vectors.with_ids(stored.ids)


def _addresses(where: str, key: str | None, local: Path, stored: StoredMatrix) -> tuple[tuple[str, int], ...]:
    """(address, rows) of each file behind a path or URI `where`, of which `local` is the copy on this machine."""

    def address(file: Path) -> str:
        if not is_uri(where):
            return str(file.absolute())
        return "/".join([where.rstrip("/"), *file.relative_to(local).parts])

    files = stored.shards or ((local, len(stored.array)),)
    # A key that names a side of clip-retrieval's layout is a folder, and part of the address already.
    of_side = local.is_dir() and files[0][0].parent != local
    inside = "" if key is None or of_side else f"::{key}"
    return tuple((f"{address(file)}{inside}", rows) for file, rows in files)


def _stored(name: str, path: Path, key: str | None, skip_unreadable: bool) -> tuple[StoredMatrix, Stamps]:
    """The matrix in a file or folder, and the stamps of the files that it was read from."""
    if not path.is_dir():
        taken = stamps([path])
        return READERS[path.suffix.lower()](path, key), taken
    found, metadata = side_folders(path), None
    if found:
        metadata = path / METADATA if (path / METADATA).is_dir() else None
        path, key = path / chosen_side(str(path), found, key), None
    files = shard_paths(name, path)
    taken = stamps([*files, *([] if metadata is None else [described_by(file, metadata) for file in files])])
    return read_shards(path, files, key, metadata, skip_unreadable), taken


def row_norms(rows: Tensor) -> Tensor:
    """Norms of rows (b, D) float32: (b,) float64, exact even for the smallest and largest floats."""
    norms: Tensor = torch.linalg.vector_norm(rows, dim=1).double()
    far = _far(norms)
    if far.any():
        norms[far] = torch.linalg.vector_norm(rows[far].double(), dim=1)
    return norms


def _far(norms: Tensor) -> Tensor:
    return ~((norms > _SMALL) & (norms < _LARGE))


def normalized(rows: Tensor) -> Tensor:
    """The rows (b, D) divided by their norms, in place; rows that `look_through` refuses become NaN."""
    norms = row_norms(rows)
    far = _far(norms)
    if far.any():
        rows[far] = (rows[far].double() / norms[far, None]).float()
        norms[far] = 1.0
    return rows.div_(norms.float()[:, None])


@dataclass(frozen=True)
class Norms:
    """Norms of the stored rows: the smallest, the largest, and the share within `tolerance` of 1."""

    least: float
    most: float
    unit_share: float
    tolerance: float


def look_through(vectors: VectorFile, begin: int = 0) -> Norms:
    """The norms of all rows, which are read once, in bounded memory.

    begin: the number of the first row in messages.

    A norm counts as 1 within 1e-3, in half precision within 1e-2. Raises InputError if rows hold NaN, infinite values
    or only zeros, or if `vectors.normalize` is None and rows are not unit vectors.
    """
    half = vectors.dtype in (torch.float16, torch.bfloat16)
    tolerance = 1e-2 if half else UNIT
    unusable, off = UnusableRows(), RowErrors()
    least, most = float("inf"), 0.0
    row_bytes = vectors.dtype.itemsize * vectors.shape[1]
    with byte_bar(f"checking {vectors}", row_bytes * len(vectors)) as bar:
        for first, rows in replace(vectors, normalize=False).blocks():
            norms = row_norms(rows).cpu()
            unusable.add(begin + first, norms.numpy())
            off.add(begin + first, ((norms - 1).abs() > tolerance).numpy())
            least, most = min(least, norms.min().item()), max(most, norms.max().item())
            bar.update(row_bytes * len(rows))
    as_what = " as float32" if vectors.dtype == torch.float64 else ""
    unusable.refuse(
        f"{vectors}: of {len(vectors)} rows{as_what}, counted from 0:",
        "Embed what they stand for again, or leave these rows out on both sides",
    )
    measured = Norms(least, most, 1 - off.count / len(vectors), tolerance)
    require(
        vectors.normalize is not None or off.count == 0,
        f"{vectors}: the norms of the rows lie between {least:.4g} and {most:.4g}; {off.count:,} of {len(vectors):,} "
        f"differ from 1 by more than {tolerance:g} (rows, counted from 0: {off}). Set normalize=true (in Python "
        "normalize=True) to divide each row by its norm (cosine), or false to take the inner products as they are",
    )
    return measured


def few_checked(vectors: np.ndarray | Tensor, normalize: bool | None) -> Tensor | None:
    """A copy of a few rows (b, D) as a search takes them; None where `look_through` would refuse or convert them.

    normalize: see `VectorFile`. Only float32 rows on the CPU are looked at.
    """
    if vectors.dtype not in (np.float32, torch.float32) or (
        isinstance(vectors, Tensor) and (vectors.device.type != "cpu" or vectors.layout != torch.strided)
    ):
        return None
    rows = np.array(vectors.detach().numpy() if isinstance(vectors, Tensor) else vectors, order="C")
    norms = np.sqrt(np.square(rows).sum(axis=1))
    if not (norms.min() > _SMALL and norms.max() < _LARGE) or (normalize is None and np.abs(norms - 1).max() > UNIT):
        return None
    return normalized(torch.from_numpy(rows)) if normalize else torch.from_numpy(rows)


def same_space(queries: VectorFile, items: VectorFile, reference: VectorFile | None = None) -> None:
    """Raise InputError unless all have the same dimension; the message names those that look transposed (D, n)."""
    given = [queries, items] + ([] if reference is None else [reference])
    if len({one.shape[1] for one in given}) == 1:
        return
    shapes = "; ".join(f"{one}: {one.shape[0]} rows of {one.shape[1]} numbers" for one in given)
    raise InputError(f"the vectors are not of one space: {shapes}. {_advice(given)}")


def _advice(given: list[VectorFile]) -> str:
    """Advice for the message: transpose some of the files, if that makes the dimensions equal."""
    others = {one.shape[1]: [other for other in given if other.shape[1] != one.shape[1]] for one in given}
    options = [rest for dim, rest in others.items() if all(one.shape[0] == dim for one in rest)]
    if not options and len({one.shape[0] for one in given}) == 1 and all(one.shape[0] < one.shape[1] for one in given):
        options = [given]
    if not options:
        return "Give vectors of the same model on all sides"
    names = " or the ".join(" and ".join(one.name for one in option) for option in options)
    return f"It looks as if the {names} were transposed, one vector per column: save array.T, one vector per row"
