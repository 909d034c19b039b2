"""Items in shards: what a worker computes from a shard, with the functions that rank all items on one machine.

A worker opens the file of its shard itself and reads only the shard's rows. Queries, reference and reference items come
as arrays.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from vsehub.checks import InputError, require
from vsehub.criteria.base import Correction, Terms, fit_all
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through, open_vectors
from vsehub.io.address import Address
from vsehub.neighbors.tiles import (
    COLUMN_ELEMENTS,
    GPU_TILE_ITEMS,
    GPU_TILE_QUERIES,
    LEAST_COLUMNS,
    QUERIES_HELD,
    TILE_ITEMS,
    TILE_QUERIES,
    nearest,
    row_blocks,
    score_columns,
)
from vsehub.neighbors.vectors import VectorSource, as_vectors

# A shard has at most this many numbers, 256 MB of float32. Shards are small enough that each worker gets several.
MOST_NUMBERS = 2**26
USUAL_SHARDS, LEAST_ROWS = 64, 16_384
# Measured: of a process that has imported torch and Ray, and of each score in a block with what a criterion makes of
# it. Mutual proximity, which works in float64, takes most.
PROCESS_BYTES, SCORE_BYTES = 700 * 2**20, 24


# Terms as they go between processes.
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Shard:
    """Rows `start` to `stop` - 1 of the file of vectors at `address`, which has `rows` of them.

    first: the number of the first of these rows among all items. normalize: see `VectorFile`.
    """

    address: str
    rows: int
    start: int
    stop: int
    first: int
    normalize: bool | None

    def __len__(self) -> int:
        return self.stop - self.start

    @property
    def place(self) -> slice:
        """Its rows among all items."""
        return slice(self.first, self.first + len(self))

    def opened(self) -> VectorFile:
        """The rows. Raises InputError if the file cannot be read here, or is not the one that the command read."""
        try:
            whole = _opened(self.address, self.normalize)
        except InputError as error:
            raise InputError(f"{error} (on a worker: every machine must find the items at the same address)") from error
        require(
            len(whole) == self.rows,
            f"{whole} has {len(whole)} rows on a worker and {self.rows} where the command runs; expected the same file "
            "at the same path on every machine",
        )
        origin = replace(whole.origin, path=f"{self.address}, rows {self.start} to {self.stop - 1}")
        return replace(whole, source=whole.source[self.start : self.stop], ids=None, labels=None, origin=origin)


@lru_cache(maxsize=2)  # a .parquet is unpacked once for all of its shards
def _opened(address: str, normalize: bool | None) -> VectorFile:
    return open_vectors(address, "items", normalize=normalize)


def divided(items: VectorFile, rows: int | None = None) -> list[Shard]:
    """The items in shards of at most `rows` rows, none of which lies in two files; None: see `shard_rows`.

    Raises InputError for vectors that lie in no file, which another process could not open.
    """
    require(items.origin.files is not None, f"{items} is an array in this process; items in shards must lie in files")
    rows = shard_rows(*items.shape) if rows is None else rows
    found, first = [], 0
    for address, count in items.origin.files or ():
        pieces = -(-count // rows)
        for piece in range(pieces):  # of almost equal sizes
            start, stop = piece * count // pieces, (piece + 1) * count // pieces
            found.append(Shard(Address(address), count, start, stop, first + start, items.normalize))
        first += count
    return found


def shard_rows(items: int, dim: int) -> int:
    """The usual rows of a shard: about 64 shards, none with few rows or more than 256 MB."""
    return min(max(LEAST_ROWS, -(-items // USUAL_SHARDS)), max(1, MOST_NUMBERS // dim))


def looked_through(shard: Shard) -> Norms:
    """The norms of a shard's rows; see `look_through`."""
    return look_through(shard.opened(), begin=shard.start)


def together(norms: Sequence[Norms], rows: Sequence[int]) -> Norms:
    """The norms of all items, from those of the shards. rows: of each shard."""
    share = sum(one.unit_share * count for one, count in zip(norms, rows, strict=True)) / sum(rows)
    return Norms(min(one.least for one in norms), max(one.most for one in norms), share, norms[0].tolerance)


def terms_by_column(
    shard: Shard,
    criteria: Sequence[Correction],
    reference: np.ndarray,
    reference_items: np.ndarray | None,
    device: str,
) -> list[Terms]:
    """The item terms of each of the criteria that work column by column, (m,) each."""
    bank = None if reference_items is None else _on(reference_items, device)
    return fit_all(criteria, shard.opened(), _on(reference, device), bank)


def terms_in_passes(
    items: Shard | np.ndarray,
    criterion: Correction,
    number: int,
    state: Arrays,
    own: Arrays,
    reference: np.ndarray,
    device: str,
) -> list[Terms]:
    """`Correction.part` of a shard, or of reference items (G, D) that are taken as items.

    state, own: its arguments `shared` and `own`.
    """
    source = items.opened() if isinstance(items, Shard) else as_vectors("reference_items", items)
    columns = score_columns(_on(reference, device), source)
    return [criterion.part(columns, number, as_terms(state, "cpu"), as_terms(own, device))]


def query_parts(
    shard: Shard, queries: np.ndarray, criteria: Sequence[Correction], item_terms: Sequence[Arrays], device: str
) -> list[Terms]:
    """`Correction.query_part` of each of the criteria for one block of queries. item_terms: of the shard's items."""
    asked, among = _on(queries, device), shard.opened()
    return [
        criterion.query_part(blocks, as_terms(terms, device))
        for criterion, terms in zip(criteria, item_terms, strict=True)
        for blocks in row_blocks(asked, among)
    ]


def lists(
    shard: Shard,
    queries: np.ndarray,
    depth: int,
    criteria: Sequence[Correction],
    item_terms: Sequence[Arrays],
    query_terms: Sequence[Arrays],
    device: str,
) -> list[Terms]:
    """Values and positions among all items (b, depth) of one block of queries: the plain lists, and each criterion's.

    item_terms: of the shard's items. query_terms: of these queries. A shard with fewer items than `depth` gives all.
    """
    corrections = [
        criterion.over_tiles(as_terms(terms, device), as_terms(own, device))
        for criterion, terms, own in zip(criteria, item_terms, query_terms, strict=True)
    ]
    found = nearest(_on(queries, device), shard.opened(), min(depth, len(shard)), [None, *corrections])
    return [(values, positions + shard.first) for values, positions in found]


def _on(rows: np.ndarray, device: str) -> VectorSource:
    return as_vectors("vectors", rows, device=torch.device(device))


def as_terms(arrays: Arrays, device: str) -> Terms:
    """Copies, as tensors, of the arrays of another process."""
    return tuple(torch.tensor(array, device=device) for array in arrays)


def as_arrays(terms: Terms) -> Arrays:
    """Tensors as arrays that another process can receive."""
    return tuple(term.cpu().numpy() for term in terms)


@torch.no_grad()
def carried_out(function: Callable[..., Any], *arguments: Any) -> Any:
    """The result of one of the functions above, terms as arrays."""
    answer = function(*arguments)
    return [as_arrays(terms) for terms in answer] if isinstance(answer, list) else answer


def terms_bytes(dim: int, reference: int, bank: int) -> int:
    """The main memory that one worker needs at most for item terms. reference, bank: rows of each.

    Received arrays, their tensors, and a block of scores.
    """
    scores = max(COLUMN_ELEMENTS, LEAST_COLUMNS * reference)
    return PROCESS_BYTES + 2 * 4 * dim * (reference + bank) + SCORE_BYTES * scores


def lists_bytes(dim: int, queries: int, depth: int, rankings: int, own_terms: bool, gpu: bool = False) -> int:
    """The main memory that one worker needs at most for lists of the depth, of the plain and all other rankings.

    A block of queries as it came and as it is held, a tile of scores for each ranking, lists while they are merged,
    and, where queries have terms of their own that rank, a block of scores.
    """
    held = min(queries, QUERIES_HELD)
    tile = GPU_TILE_QUERIES * GPU_TILE_ITEMS if gpu else TILE_QUERIES * TILE_ITEMS
    lists = 4 * (2 + rankings) * tile + 4 * 12 * rankings * held * depth
    return PROCESS_BYTES + 2 * 4 * dim * held + lists + own_terms * SCORE_BYTES * COLUMN_ELEMENTS
