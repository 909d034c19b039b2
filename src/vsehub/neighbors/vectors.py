"""Vectors that are read in blocks, their products, corrections of tiles of these, and seeded samples of vectors.

Precomputed scores, of a cross-encoder, SCAN or any other model that compares pairs, are read alike: a row of scores
stands for a query, and `UnitVectors` for the items, since the inner product of a row with the m-th unit vector is its
m-th score. Every search among vectors thus accepts precomputed scores, and computes no product.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, matrix, require
from vsehub.io.arrays import row_hashes

BLOCK, BLOCK_ELEMENTS = 65536, 2**25  # rows and numbers that are read at a time: 128 MB of float32
PERMUTED = 10_000_000  # up to this size, samples are drawn by a permutation of all numbers
_HASHED_BYTES = 16 << 20
# A BLAS multiplies fewer columns or rows than these by other routines, which add up the products in another order.
NARROW, LOW = 16, 8


@runtime_checkable
class VectorSource(Protocol):
    """(N, D) vectors that are read in blocks: a file, or the result of `as_vectors`.

    shape: (N, D). rows(start, stop): a tensor (stop - start, D), float32 or float64.
    """

    @property
    def shape(self) -> tuple[int, int]: ...

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Tensor: ...


def as_vectors(name: str, vectors: Any, columns: int | None = None, device: torch.device | None = None) -> VectorSource:
    """`vectors` as a `VectorSource`: a tensor, a numpy array (memory-mapped or not) or an object that has `rows`.

    columns: the required dimension. device: the device of the blocks; None: where the vectors are. Raises InputError
    if it is not a matrix of floating-point numbers, has no rows or another dimension.
    """
    if isinstance(vectors, Tensor | np.ndarray):
        floating = vectors.is_floating_point() if isinstance(vectors, Tensor) else vectors.dtype.kind == "f"
        require(floating, f"{name} holds {vectors.dtype} numbers; expected floating-point vectors")
        source: VectorSource = _ArrayRows(vectors, device)
    else:
        if not isinstance(vectors, VectorSource):
            fail(f"{name} is {type(vectors).__name__}; expected a tensor or a numpy array (N, D)")
        source = vectors if device is None else Moved(vectors, device)
    matrix(name, source, columns=columns)
    require(source.shape[0] > 0, f"{name} is empty; expected at least one row")
    return source


class BlockedRows:
    """Rows that are read in blocks; a subclass sets `shape` and writes `rows`."""

    shape: tuple[int, int]

    def __len__(self) -> int:
        return self.shape[0]


class _ArrayRows(BlockedRows):
    """The rows of a tensor or an array, on `device`; half precision is widened block by block."""

    def __init__(self, vectors: Tensor | np.ndarray, device: torch.device | None):
        self.vectors, self.device = vectors, device
        self.shape = tuple(vectors.shape)

    def rows(self, start: int, stop: int) -> Tensor:
        block = self.vectors[start:stop]
        if isinstance(block, np.ndarray):
            # torch takes no read-only array and no negative stride. An empty array may have a negative stride although
            # numpy calls it contiguous.
            usable = block.flags.writeable and min(block.strides) >= 0
            block = torch.from_numpy(np.ascontiguousarray(block) if usable else np.array(block, order="C"))
        block = block.detach()
        return block.to(self.device, torch.float64 if block.dtype == torch.float64 else torch.float32)


def array_of(source: VectorSource) -> np.ndarray | None:
    """The rows of a source as they lie in this machine's memory, not copied; None unless they are float32 there."""
    if not isinstance(source, _ArrayRows) or source.device not in (None, torch.device("cpu")):
        return None
    rows = source.vectors
    if isinstance(rows, Tensor) and rows.is_cpu and rows.dtype == torch.float32:
        rows = rows.detach().numpy()
    if isinstance(rows, np.ndarray) and rows.dtype == np.float32 and rows.flags.c_contiguous:
        return rows
    return None


class Moved(BlockedRows):
    """The rows of another source, or the rows and columns of precomputed scores, on `device`."""

    def __init__(self, vectors: Any, device: torch.device):
        self._vectors, self._device, self.shape = vectors, device, vectors.shape

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1 on the device."""
        return self._vectors.rows(start, stop).to(self._device)

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` - 1 on the device."""
        return self._vectors.columns(start, stop).to(self._device)


class Subset(BlockedRows):
    """Some rows of another source or of precomputed scores. positions: their numbers (n,), ascending."""

    def __init__(self, vectors: Any, positions: Tensor):
        self._vectors, self._positions = vectors, positions
        self.shape = (len(positions), vectors.shape[1])

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1."""
        positions = self._positions[start:stop]
        first, last = (int(positions[0]), int(positions[-1]) + 1) if len(positions) else (0, 0)
        block: Tensor = self._vectors.rows(first, last)
        return block[(positions - first).to(block.device)]

    def columns(self, start: int, stop: int) -> Tensor:
        """Columns `start` to `stop` - 1."""
        block: Tensor = self._vectors.columns(start, stop)
        return block[self._positions.to(block.device)]


class UnitVectors(BlockedRows):
    """The M items of precomputed scores: item m is the m-th unit vector (M,).

    The queries and the reference beside them are scores (N, M) that also have columns(start, stop): (N, stop - start).
    """

    ids: list[str] | None = None  # as a file of vectors has them
    labels: list[str] | None = None

    def __init__(self, items: int):
        self.shape = (items, items)

    def rows(self, start: int, stop: int) -> Tensor:
        """Raises InputError: comparing items with each other needs their vectors, which precomputed scores lack."""
        fail("scores of queries and items do not say how items compare with each other; give vectors")

    columns = rows


# (scores (b, m), their queries, their items) -> corrected scores (b, m)
TileCorrection = Callable[[Tensor, slice, slice], Tensor]


@dataclass(frozen=True, eq=False)
class Affine:
    """The correction a·s - b(item) of scores s. scale: a. bias: b (M,)."""

    scale: float
    bias: Tensor

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self.scale * scores - self.bias[columns]


# (queries (b, D), memory for the result or None) -> scores (b, m)
Products = Callable[[Tensor, Tensor | None], Tensor]


def products(items: Tensor) -> Products:
    """A function (queries (b, D), memory for the result or None) -> their inner products (b, m) with items (m, D).

    The score of an item does not depend on the items beside it, so that copies are tied in every block: few items or
    few queries are padded with rows of zeros to the size from which a BLAS uses one routine.
    """
    count, factor = len(items), padded_rows(NARROW, items).T

    def multiply(queries: Tensor, out: Tensor | None) -> Tensor:
        if count >= NARROW and len(queries) >= LOW:
            return torch.mm(queries, factor, out=out)
        scores = torch.mm(padded_rows(LOW, queries), factor)[: len(queries), :count]
        return scores if out is None else out.copy_(scores)

    return multiply


def padded_rows(count: int, rows: Tensor) -> Tensor:
    """Rows (n, D), padded with rows of zeros to `count` rows if there are fewer."""
    missing = count - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


def scoring(items: VectorSource, start: int, stop: int, like: Tensor) -> Products:
    """As `products`, for items `start` to `stop` - 1, which are read once.

    like: the queries, whose type and device the result gets. Precomputed scores are only copied.
    """
    if isinstance(items, UnitVectors):
        return lambda rows, out: rows[:, start:stop].contiguous() if out is None else out.copy_(rows[:, start:stop])
    return products(items.rows(start, stop).to(like))


def sample_rows(vectors: VectorSource, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """`count` rows (n, D) drawn by seed (all if there are fewer), and their positions (n,), ascending."""
    positions = sample_positions(len(vectors), count, seed)
    return rows_at(vectors, positions), positions


def rows_at(vectors: VectorSource, positions: Tensor, columns: Tensor | slice = slice(None)) -> Tensor:
    """The rows at positions (n,), ascending, read in blocks: (n, D), or some columns of them."""
    height = min(BLOCK, max(1, BLOCK_ELEMENTS // vectors.shape[1]))
    parts = []
    for start in range(0, len(vectors), height):
        in_block = positions[(positions >= start) & (positions < start + height)]
        if len(in_block):
            first = int(in_block[0])
            block = vectors.rows(first, int(in_block[-1]) + 1)  # nothing else is read
            parts.append(block[(in_block - first).to(block.device)][:, columns])
    return torch.cat(parts)


def sample_positions(size: int, count: int, seed: int) -> Tensor:
    """At most `count` of the numbers from 0 to size - 1, drawn by seed, ascending.

    May return fewer than `count` where size exceeds `PERMUTED`: numbers are then drawn with replacement.
    """
    generator = torch.Generator().manual_seed(seed)
    if size <= PERMUTED:
        return torch.randperm(size, generator=generator)[:count].sort().values
    return torch.randint(size, (count,), generator=generator).unique()


def to_type_of(queries: Any, *results: Tensor) -> tuple[Any, ...]:
    """The results of a search as numpy arrays if the queries are a numpy array, else as tensors."""
    return tuple(result.cpu().numpy() for result in results) if isinstance(queries, np.ndarray) else results


def row_digests(vectors: VectorSource) -> np.ndarray:
    """A 64-bit hash of each row as it is read: (n,)."""
    step = max(1, _HASHED_BYTES // (4 * vectors.shape[1]))
    blocks = (vectors.rows(first, min(first + step, len(vectors))) for first in range(0, len(vectors), step))
    return np.concatenate([row_hashes(block.float().cpu().numpy()) for block in blocks])
