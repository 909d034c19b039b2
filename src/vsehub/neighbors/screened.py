"""Exact search of float32 vectors on a CPU: a fast product rules out most items, the others are scored one by one.

Where the processor multiplies int8 (VNNI or AMX), vectors are rotated and rounded to whole numbers of a step: q ≈ s·J
and x - m ≈ t·I, with the mean m of a tile of items. By the inequality of Cauchy and Schwarz

    |q·(x - m) - st·J·I| <= st·(|q/s - J|·|I| + |q/s|·|(x - m)/t - I|),

so an item whose product and bound together stay below the k-th best score so far cannot be among the k best. Elsewhere
the fast product is float32's, and the bound is that of its rounding. Scores are dot products of one query and one item,
so copies of an item have equal scores.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import torch
from torch import Tensor

from vsehub.machine import cpu_has
from vsehub.neighbors.topk import joined
from vsehub.neighbors.vectors import Affine, BlockedRows, UnitVectors, VectorSource, array_of

# Elsewhere such products are slow, and their sums may saturate.
INT8 = hasattr(torch, "_int_mm") and cpu_has("avx512_vnni", "avx_vnni", "amx_int8")
MANY_QUERIES = 256  # fewest queries for which rounding the items pays
DIMENSIONS = range(2, 2**16 + 1)  # with 1 torch 2.14 multiplies wrongly, with more a sum could exceed int32
TILE_QUERIES, TILE_ITEMS = 1024, 4096
# Up to FEW_QUERIES queries, all scores are dot products, which take only the time of reading the items; a tile then
# has at most FEW_SCORES scores.
FEW_QUERIES, FEW_SCORES = 8, 2**17
MOST_LISTED = 0.25  # largest k, as a share of the items; beyond it all scores are dot products too
GROUP = 32  # most items in a group of the first tile's items; the first threshold follows from the best of each group
MOST_HITS = 0.02  # share of a tile's scores that int8 may leave undecided; beyond it the float32 product is faster
WAITING = 0.5  # new entries are merged once they are more than this share of all k best
PAIR_ELEMENTS = 2**16  # elements of vectors that are copied at a time
SINGLE = 2.0**-24  # the relative error of float32


class CachedItems(BlockedRows):
    """Items whose rounded tiles are stored for further searches, one byte per element."""

    def __init__(self, source: VectorSource):
        self.source, self.shape = source, source.shape
        self.tiles: dict[int, _Rounded] = {}

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1."""
        return self.source.rows(start, stop)


def tiles_of(queries: int, items: int) -> list[slice]:
    """The tiles of a number of items for a number of queries."""
    width = TILE_ITEMS if queries > FEW_QUERIES else FEW_SCORES // queries
    return [slice(start, min(start + width, items)) for start in range(0, items, width)]


def applies(queries: Tensor, items: VectorSource, k: int) -> bool:
    """Return True if `search` supports these inputs: vectors of float32 on a CPU, and k within a tile."""
    float32 = queries.is_cpu and queries.dtype == torch.float32 and not isinstance(items, UnitVectors)
    return float32 and k <= tiles_of(len(queries), len(items))[0].stop


def search(
    queries: Tensor, items: VectorSource, k: int, corrections: Sequence[Affine | None], advance: Callable[[int], object]
) -> list[tuple[Tensor, Tensor]]:
    """Values and positions (Q, k) for each correction, best first; among equal values the lower position comes first.

    queries, items, k: see `applies`. corrections: corrections with scales above 0; None for the plain scores. advance:
    receives the number of further scores that were decided.
    """
    score_all = len(queries) <= FEW_QUERIES or k > MOST_LISTED * len(items)
    tiles = tiles_of(len(queries), len(items))
    source: VectorSource = items
    cache = dict[int, _Rounded]()
    if isinstance(items, CachedItems):
        source, cache = items.source, items.tiles
    array = array_of(source)  # not copied
    int8 = INT8 and not score_all and items.shape[1] in DIMENSIONS and (len(queries) >= MANY_QUERIES or bool(cache))
    with np.errstate(all="ignore"):
        blocks = [_Block(rows.numpy(), k, corrections, int8, score_all) for rows in queries.split(TILE_QUERIES)]
        buffer = np.empty(tiles[0].stop * len(blocks[0].queries), np.float32)
        for tile in tiles:
            rows = source.rows(tile.start, tile.stop).to(queries).numpy() if array is None else array[tile]
            rounded = cache.get(tile.start)
            # The first tile sets the thresholds: before that int8 rules nothing out.
            if rounded is None and int8 and tile.start:
                rounded = _round(rows, rows.mean(axis=0))
                if isinstance(items, CachedItems):
                    cache[tile.start] = rounded
            largest_norm = 0.0  # not needed where all scores are dot products
            if rounded is not None:
                largest_norm = rounded.largest_norm
            elif not score_all:
                largest_norm = float(_norms(rows).max())
            for block in blocks:
                block.enter(tile.start, rows, rounded, largest_norm, buffer[: len(rows) * len(block.queries)])
                advance(len(rows) * len(block.queries))
        lists = [[best.merge() for best in block.best] for block in blocks]
    return [joined(parts) for parts in zip(*lists, strict=True)]


@dataclass(frozen=True)
class _Rounded:
    """Vectors (n, D) less their centre (D,), rotated, as whole numbers of a step.

    largest_norm: the largest norm of the vectors themselves. whole: (n, P) int8. norms, errors: upper bounds of the
    norms of the whole numbers, and of the norms of their rounding errors, in steps: (n,).
    """

    largest_norm: float
    centre: np.ndarray
    whole: Tensor
    step: float
    norms: np.ndarray
    errors: np.ndarray


def _round(vectors: np.ndarray, centre: np.ndarray) -> _Rounded:
    """The vectors rounded; norms are NaN where numbers are not finite."""
    turned = _rotated(vectors - centre)
    scale = np.float32(127 / max(float(np.abs(turned).max()), 2.0**-100))
    turned *= scale
    whole = np.rint(turned)
    turned -= whole
    spare = 1 + turned.shape[1] * SINGLE  # for the rounding of the norms themselves
    norms = spare * _norms(whole)
    errors = spare * _norms(turned) + 4 * SINGLE * norms
    return _Rounded(
        largest_norm=_norms(vectors).max(),
        centre=centre,
        whole=torch.from_numpy(whole.astype(np.int8)),
        step=1 / np.float64(scale),
        norms=norms,
        errors=errors,
    )


def _rotated(vectors: np.ndarray) -> np.ndarray:
    """Vectors (n, D), rotated so that no dimension stands out; zeros first pad D to the product of two sizes."""
    first, second = _rotations(vectors.shape[1])
    if missing := len(first) * len(second) - vectors.shape[1]:
        vectors = np.pad(vectors, ((0, 0), (0, missing)))
    parts = vectors.reshape(-1, len(second), len(first)).swapaxes(1, 2)
    return (first @ parts @ second).reshape(len(vectors), -1)


@cache
def _rotations(dim: int) -> tuple[np.ndarray, ...]:
    """Two orthogonal matrices whose Kronecker product has at least `dim` rows; the second is the larger."""
    random = np.random.default_rng(0)
    larger = 2 ** math.ceil(math.log2(dim) / 2)
    matrices = [random.standard_normal((size, size)) for size in (math.ceil(dim / larger), larger)]
    return tuple(np.linalg.qr(matrix)[0].astype(np.float32) for matrix in matrices)


def _norms(vectors: np.ndarray) -> np.ndarray:
    """The norms (n,), float64."""
    return np.sqrt(np.vecdot(vectors, vectors).astype(np.float64))


class _Block:
    """Some queries (b, D), with the k best so far for each correction."""

    def __init__(self, queries: np.ndarray, k: int, corrections: Sequence[Affine | None], int8: bool, score_all: bool):
        self.queries, self._score_all = queries, score_all
        self.best = [_Best(k, len(queries), correction) for correction in corrections]
        self._norms = _norms(queries.astype(np.float64))
        self._rounded = _round(queries, np.zeros_like(queries[0])) if int8 else None
        self._int8_from = 1

    def enter(
        self, start: int, rows: np.ndarray, rounded: _Rounded | None, largest_norm: float, buffer: np.ndarray
    ) -> None:
        """Enter the items from `start` on, which are `rows` (m, D).

        largest_norm: the largest norm of the items, which only the screen needs. buffer: (b·m,) float32, overwritten.
        """
        if self._score_all:
            self._by_dot_products(start, rows, buffer)
            return
        # Rounding errors (Higham 2002, section 3.1). 2.1 D: two sums of D products, a score's and the screen's;
        # 20 s^1.5: two rotations by matrices of at most s rows; 16: all other operations.
        units = 2.1 * rows.shape[1] + 20 * len(_rotations(rows.shape[1])[1]) ** 1.5 + 16
        error = self._norms * largest_norm * units * SINGLE
        reached = self._by_int8(start, rounded, error, buffer) or self._by_float32(start, rows, error, buffer)
        for best, (item, query) in zip(self.best, reached, strict=True):
            best.add(query, start + item, _scores(self.queries, query, rows, item))

    def _by_dot_products(self, start: int, rows: np.ndarray, buffer: np.ndarray) -> None:
        """Enter the items by their scores, all of which are computed."""
        scores = buffer.reshape(len(rows), -1)
        np.vecdot(rows[:, None], self.queries, out=scores)
        for best in self.best:
            values = best.values(scores, np.arange(start, start + len(rows))[:, None])
            least = best.least if start else best.first_least(values)
            item, query = np.divmod(np.flatnonzero(~(values < least)), values.shape[1])
            best.add(query, start + item, scores[item, query])

    def _by_int8(
        self, start: int, tile: _Rounded | None, error: np.ndarray, buffer: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """For each correction, items and queries (n,) of the pairs that may be among the best, by products of int8.

        Empty where these rule out too little, do not apply or would be too large.
        """
        queries = self._rounded
        if tile is None or queries is None or start < self._int8_from:
            return []
        # Tried again at twice this position if the products rule out too little: the k-th best has risen by then.
        self._int8_from = 2 * start
        reached_pairs = []
        products = torch.from_numpy(buffer).view(torch.int32).view(len(tile.whole), len(queries.whole))
        torch._int_mm(tile.whole, queries.whole.T, out=products)
        bound = queries.errors.max() * tile.norms + (queries.norms + queries.errors).max() * tile.errors
        unit = tile.step * queries.step
        shift = self.queries.astype(np.float64) @ tile.centre.astype(np.float64) + error
        for best in self.best:
            allowance = np.ceil(bound[:, None] - best.term(start, len(bound)) / unit)
            if not np.abs(allowance).max() < 2**30:
                return []
            out = products if best is self.best[-1] else None  # the last correction may overwrite the products
            upper = torch.add(products, torch.from_numpy(allowance.astype(np.int32)), out=out).numpy()
            least = np.floor((best.least / best.scale - shift) / unit).clip(-(2**31), 2**31 - 1).astype(np.int32)
            reached = upper >= least
            if np.count_nonzero(reached) > MOST_HITS * reached.size:
                return []
            reached_pairs.append(np.divmod(np.flatnonzero(reached), reached.shape[1]))
        self._int8_from = start
        return reached_pairs

    def _by_float32(
        self, start: int, rows: np.ndarray, error: np.ndarray, buffer: np.ndarray
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """As `_by_int8`, by products of float32; a NaN may always be among the best."""
        products = torch.from_numpy(buffer).view(len(rows), len(self.queries))
        np.dot(rows, self.queries.T, out=products.numpy())
        reached_pairs = []
        for best in self.best:
            out = products if best is self.best[-1] else None  # as in `_by_int8`
            upper = torch.sub(products, torch.from_numpy(best.term(start, len(rows))), out=out).numpy()
            least = best.least / best.scale
            if start == 0:
                # Products and terms are rounded: k items have values of at least `first` less these errors.
                first = best.first_least(upper).astype(np.float64)
                least = first - error - 16 * SINGLE * np.abs(first)
            below = upper < np.nextafter((least - error).astype(np.float32), -np.inf)
            reached_pairs.append(np.divmod(np.flatnonzero(np.logical_not(below, out=below)), below.shape[1]))
        return reached_pairs


class _Best:
    """The k best items so far of some queries (b,) under one correction.

    least: (b,) the least value that may enter, -inf before there are k items.
    """

    def __init__(self, k: int, queries: int, correct: Affine | None):
        self.k, self.scale = k, 1.0 if correct is None else correct.scale
        self.least = np.full(queries, -np.inf)
        self._bias = None if correct is None else correct.bias.detach().numpy()
        self._entries: list[tuple[np.ndarray, ...]] = []  # queries, values and positions
        self._waiting = math.inf  # the first entries are merged at once, which sets `least`

    def term(self, start: int, count: int) -> np.ndarray:
        """b/a of some items (count, 1), which is subtracted from scores, lowered by its rounding error."""
        if self._bias is None:
            return np.zeros((count, 1), np.float32)
        term = self._bias[start : start + count, None] / self.scale
        return (term - 8 * SINGLE * np.abs(term)).astype(np.float32)

    def values(self, scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """The corrected scores of items at these positions."""
        return scores if self._bias is None else self.scale * scores - self._bias[positions]

    def first_least(self, values: np.ndarray) -> np.ndarray:
        """A value (b,) that at least k of the first items reach, from values (m, b): the k-th largest group maximum."""
        size = min(GROUP, len(values) // self.k)
        groups = len(values) // size
        maxima = values[: groups * size].reshape(groups, size, -1).max(axis=1)
        return np.partition(maxima, -self.k, axis=0)[-self.k]

    def add(self, query: np.ndarray, positions: np.ndarray, scores: np.ndarray) -> None:
        """Enter n scores. All positions are above those of earlier calls.

        query, positions: (n,), the row of the query and the position of the item of each score. scores: (n,).
        """
        values = self.values(scores, positions)
        entering = ~(values < self.least[query])
        self._entries.append((query[entering], values[entering], positions[entering]))
        self._waiting += np.count_nonzero(entering)
        if self._waiting > WAITING * self.k * len(self.least):
            self.merge()

    def merge(self) -> tuple[Tensor, Tensor]:
        """Merge the entries, raise `least`, and return values and positions (b, k), best first."""
        query, values, positions = (np.concatenate(parts) for parts in zip(*self._entries, strict=True))
        order = torch.from_numpy(values).sort(descending=True, stable=True).indices.numpy()  # NaN first
        order = order[query[order].astype(np.uint16).argsort(kind="stable")]  # numpy sorts 16 bits by radix: fast
        first = np.searchsorted(query[order], np.arange(len(self.least)))
        order = order[np.arange(len(order)) - first[query[order]] < self.k]
        self._entries, self._waiting = [(query[order], values[order], positions[order])], 0
        rows = values[order].reshape(-1, self.k)
        self.least = np.nextafter(rows[:, -1], np.inf)  # a later item of an equal value would rank behind
        return torch.from_numpy(rows), torch.from_numpy(positions[order].reshape(-1, self.k))


def _scores(queries: np.ndarray, query: np.ndarray, rows: np.ndarray, item: np.ndarray) -> np.ndarray:
    """The scores (n,) of pairs of queries (b, D) and items `rows` (m, D), at positions `query` and `item` (n,)."""
    scores, step = np.empty(len(query), np.float32), max(1, PAIR_ELEMENTS // rows.shape[1])
    for first in range(0, len(query), step):
        some = slice(first, first + step)
        np.vecdot(queries.take(query[some], axis=0), rows.take(item[some], axis=0), out=scores[some])
    return scores
