"""Exact inner-product search, plain and corrected, from scores computed tile by tile in bounded memory.

Lists of float32 vectors on the CPU, plain and under an item bias, are exact by the scores of `neighbors.defined`.
"""

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.io.progress import bar
from vsehub.metrics.topk import Best, RunningTopK
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.defined import (
    dense_lists,
    exact_lists,
    largest_norm,
    norms_of,
    scores_at,
    screen_error,
    screened,
)
from vsehub.neighbors.given import GivenScores, UnitVectors, scoring
from vsehub.neighbors.in_memory import FEW_QUERIES, InMemory, best_of_one, memory
from vsehub.neighbors.int8 import LEAST_DIMENSIONS, MOST_DIMENSIONS, steps_of_queries
from vsehub.neighbors.rounded import NARROW, Products, RoundedVectors, at_least
from vsehub.neighbors.screen import Screen
from vsehub.neighbors.threads import in_threads
from vsehub.neighbors.vectors import VectorSource

if TYPE_CHECKING:
    from tqdm import tqdm

# (scores (b, m), their queries, their items) -> corrected scores (b, m)
TileCorrection = Callable[[Tensor, slice, slice], Tensor]
# A correction makes temporary tensors: those of this many scores fit into a core's cache.
STRIP_ELEMENTS = 2**17
# The size of a tile that fits into a core's cache, where it is read many times at little cost.
TILE_QUERIES, TILE_ITEMS = 512, 4096
# A GPU is faster with few, large products: 512 MB of float32 scores at a time.
GPU_TILE_QUERIES, GPU_TILE_ITEMS = 4096, 32768
# How many queries are held during one pass over the items: more mean fewer reads and normalisations of the items.
QUERIES_HELD = 16384
# Rows of given scores may be wide: at most 512 MB of float32 are held.
HELD_ELEMENTS = 2**27
# Scores of all reference queries against some items: 128 MB of float32 at a time, for any number of queries.
COLUMN_ELEMENTS = 2**25
LEAST_COLUMNS = NARROW
# Queries, over all searches of the items, from which on rounding the items pays; items that are not screened,
# since little is known of the k-th best.
SCREENED_QUERIES, OPENED_ITEMS = 4096, 4096
OPENED_FOR_EACH = 32  # of the items sought
# Multiplications, and queries for each thread, from which on threads pay.
THREADED, LEAST_ROWS = 2**32, 64
BAR: dict[str, Any] = {"unit": " scores", "unit_scale": True}


def nearest(
    queries: VectorSource,
    items: VectorSource,
    k: int,
    corrections: Sequence[TileCorrection | None] = (None,),
) -> list[tuple[Tensor, Tensor]]:
    """Values and positions (Q, k), best first, for each correction (None: the plain scores).

    All corrections share one product of queries and items. Among equal values the lower position comes first.
    Raises InputError if k exceeds the number of items.
    """
    parts = [found for _, found in nearest_blocks(queries, items, k, corrections)]
    return [
        (torch.cat([values for values, _ in blocks]), torch.cat([positions for _, positions in blocks]))
        for blocks in zip(*parts, strict=True)
    ]


def nearest_blocks(
    queries: VectorSource,
    items: VectorSource,
    k: int,
    corrections: Sequence[TileCorrection | None] = (None,),
    start: int = 0,
) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
    """(first query, the result of `nearest` for these queries), QUERIES_HELD queries at a time from `start`."""
    require(0 < k <= len(items), f"k is {k}; expected 1 to {len(items)}, the number of items")
    if isinstance(items, InMemory) and 0 < len(queries) - start <= FEW_QUERIES:
        few = queries.rows(start, len(queries))
        if _is_defined(few, items) and all(one is None or isinstance(one, Affine) for one in corrections):
            yield start, _nearest_of_few(few, items, k, corrections)
            return
    total = (len(queries) - start) * len(items)
    with bar("searching", total=total, **BAR) as steps:
        height = held_at_once(queries)
        for first in range(start, len(queries), height):
            held = queries.rows(first, min(first + height, len(queries)))
            yield first, _Search(held, first, items, k, corrections).best(steps)


class _ScoresOfThread(threading.local):
    """What each thread has of its own: the memory of its scores, plain and corrected."""

    def __init__(self, corrections: Sequence[TileCorrection | None]) -> None:
        self.buffer, self.corrected = MatrixBuffer(), Corrected(corrections)


class _Search:
    """The search of the k best items for some queries (b, D), of which the first is number `first` of all."""

    def __init__(
        self, queries: Tensor, first: int, items: VectorSource, k: int, corrections: Sequence[TileCorrection | None]
    ):
        self._queries, self._first, self._items, self._corrections = queries, first, items, corrections
        self._exact = _Exact(queries, items, k) if _is_defined(queries, items) else None
        self._screen = None if self._exact is None else self._exact.screen(corrections)
        self._depths = [k if self._exact is None else self._exact.depth(one) for one in corrections]
        self._threads = self._in_threads()
        self._running: dict[int, list[RunningTopK]] = {}  # for each correction, by the first row of a block of queries
        self._own = _ScoresOfThread(corrections)
        self._told = threading.Lock()  # a bar counts for one thread at a time

    def _in_threads(self) -> int:
        """In how many threads blocks of the queries are searched; 1 where operators of torch divide the work."""
        alone = all(one is None or isinstance(one, Affine) for one in self._corrections)
        work = len(self._queries) * len(self._items) * self._queries.shape[1]
        if self._exact is None or not alone or not isinstance(self._items, InMemory) or work < THREADED:
            return 1
        return min(torch.get_num_threads(), -(-len(self._queries) // LEAST_ROWS))

    def best(self, steps: "tqdm[Any]") -> list[Best]:
        """Values and positions (b, k) for each correction. steps: told of the scores."""
        parts, items = blocks(self._queries, self._threads), self._items if self._exact is None else self._exact
        with in_threads(self._threads) as each:
            if self._threads == 1:  # each item is read once, for all queries
                self._take(items, parts, steps)
            else:  # of items in memory; no thread waits for another
                if self._screen is not None:
                    each(self._screen.prepare, ranges(len(items), TILE_ITEMS))
                each(lambda rows: self._take(items, [rows], steps), parts)
            best = joined(each(self._found, parts))
            if self._exact is not None:  # by all queries at once, the items of a source are read once
                shares = parts if self._threads > 1 else [slice(0, len(self._queries))]
                best = joined(each(partial(self._exact_lists, self._exact, best), shares))
        return [_scaled((one[0], one[1]), correct) for one, correct in zip(best, self._corrections, strict=True)]

    def _take(self, items: VectorSource, parts: Sequence[slice], steps: "tqdm[Any]") -> None:
        """Add the scores of blocks of the queries with all items to the best, tile by tile of the items."""
        for columns, scored in item_tiles(self._queries, items):
            for rows in parts:
                self._take_tile(columns, scored, rows)
                with self._told:
                    steps.update((rows.stop - rows.start) * (columns.stop - columns.start))

    def _take_tile(self, columns: slice, scored: Products, rows: slice) -> None:
        """Add the scores of a block of the queries with a tile of the items to the best."""
        mine = self._running.setdefault(rows.start, [RunningTopK(depth) for depth in self._depths])
        if self._screen is not None and self._screen.takes(rows, columns, mine):
            return
        memory = self._own.buffer.matrix(rows.stop - rows.start, columns.stop - columns.start, self._queries)
        within = slice(self._first + rows.start, self._first + rows.stop)
        values = self._own.corrected.of(scored(self._queries[rows], memory), within, columns)
        for lists, one in zip(mine, values, strict=True):
            lists.add_block(one, columns.start)

    def _found(self, rows: slice) -> list[tuple[Tensor, ...]]:
        """Values, positions and whether some may be missing, of a block of the queries; for each correction."""
        running = self._running[rows.start]
        if self._screen is None:
            unsure = [torch.zeros(rows.stop - rows.start, dtype=torch.bool) for _ in running]
        else:
            unsure = self._screen.finish(rows)
        return [(*lists.best(), one) for lists, one in zip(running, unsure, strict=True)]

    def _exact_lists(self, exact: "_Exact", found: list[tuple[Tensor, ...]], rows: slice) -> list[tuple[Tensor, ...]]:
        """The exact lists of some queries, by what `_found` has found of all; for each correction."""
        return [
            exact.lists(rows, (values[rows], positions[rows]), correct, unsure[rows])
            for (values, positions, unsure), correct in zip(found, self._corrections, strict=True)
        ]


def joined(parts: Sequence[Sequence[tuple[Tensor, ...]]]) -> list[tuple[Tensor, ...]]:
    """For each correction, the tensors of all parts of the queries, one below the other."""
    return [tuple(torch.cat(sides) for sides in zip(*one, strict=True)) for one in zip(*parts, strict=True)]


def _is_defined(queries: Tensor, items: VectorSource) -> bool:
    """Whether scores are those of `neighbors.defined`."""
    vectors = not isinstance(items, UnitVectors | RoundedVectors)
    return vectors and queries.dtype == torch.float32 and queries.device.type == "cpu"


class _Exact:
    """Items (M, D), and exact lists of some queries (b, D) from fast scores with all of them.

    A `VectorSource`, which notes the largest norm of the rows that are read.
    """

    def __init__(self, queries: Tensor, items: VectorSource, k: int):
        self.queries, self._items, self._k = queries, items, k
        self._screen: Screen | None = None
        self.norms = norms_of(queries)
        self.shape = items.shape
        self._scores = items.scores_at if isinstance(items, InMemory) else scores_at(items)
        self._largest = items.largest if isinstance(items, InMemory) else 0.0

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1, of the type of the queries."""
        rows = self._items.rows(start, stop).to(self.queries)
        if not isinstance(self._items, InMemory):
            self._largest = max(self._largest, largest_norm(rows))
        if self._screen is not None:
            self._screen.read(start, rows)
        return rows

    def screen(self, corrections: Sequence[TileCorrection | None]) -> Screen | None:
        """A screen of the tiles that are read from now on; None where it saves nothing or does not apply."""
        items, affine = self._items, [one for one in corrections if one is None or isinstance(one, Affine)]
        asked = items.asked(len(self.queries)) if isinstance(items, InMemory) else len(self.queries)
        opened = max(OPENED_ITEMS, OPENED_FOR_EACH * screened(self._k, len(self)))
        fits = len(items) > opened and LEAST_DIMENSIONS <= self.shape[1] <= MOST_DIMENSIONS
        if asked >= SCREENED_QUERIES and fits and len(affine) == len(corrections):
            most = steps_of_queries()
            if most is not None:
                self._screen = Screen(self.queries, items, self._k, opened, affine, self.norms, self.error, most)
        return self._screen

    def depth(self, correct: TileCorrection | None) -> int:
        """How many items are to be screened under a correction."""
        return screened(self._k, len(self)) if correct is None or isinstance(correct, Affine) else self._k

    def error(self, correct: Affine | None) -> np.ndarray:
        """By how much fast values may differ from those of defined scores: (b,)."""
        error = screen_error(self.norms, self.shape[1], self._largest)
        return error if correct is None else correct.error(error, self.norms, self._largest)

    def lists(self, rows: slice, best: Best, correct: TileCorrection | None, unsure: Tensor) -> Best:
        """Exact values, of an `Affine` divided by its factor, and positions (b, k), from the screened best.

        rows: which of the queries. unsure: (b,) of which of these some of the best may not have been screened.
        """
        if not (correct is None or isinstance(correct, Affine)):
            return best
        values = None if correct is None else correct.unscaled
        error = self.error(correct)[rows]
        return exact_lists(self.queries[rows], best, self._k, error, self._items, self._scores, values, unsure)

    def list_of_one(
        self, query: np.ndarray, fast: np.ndarray, error: float, affine: Affine | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """`lists` of one query (1, D) of items in memory, by its fast values (M,) with all of them: (k,) both."""
        assert isinstance(self._items, InMemory)
        positions = np.sort(best_of_one(fast, screened(self._k, len(self))))
        screen = fast[positions]
        ranked = np.sort(screen)  # NaN last
        finite = math.isfinite(ranked[0]) and math.isfinite(ranked[-1])
        if not finite and math.isfinite(error):  # refused later, and must not be hidden
            order = screen.argsort()[::-1][: self._k]
            return screen[order], positions[order]
        if len(ranked) < len(self) and not ranked[0] < ranked[-self._k] - 2 * error:
            values = None if affine is None else affine.unscaled
            (exact,), (best,) = dense_lists(torch.from_numpy(query), self._k, self._items, values)
            return exact.numpy(), best.numpy()
        exact = self._items.defined_at(query, positions[None])[0]
        if affine is not None:
            exact = affine.unscaled_array(exact, positions)
        order = (-exact).argsort(kind="stable")[: self._k]
        return exact[order], positions[order]


def _nearest_of_few(
    queries: Tensor, items: InMemory, k: int, corrections: Sequence[TileCorrection | None]
) -> list[Best]:
    """The result of `nearest` for a few queries (b, D), whose scores are held at once.

    In numpy and query by query: a small operation takes a fraction of the time that it takes in torch.
    """
    exact, scores, found = _Exact(queries, items, k), items.scores(queries).numpy(), []
    asked = queries.numpy()
    for place, correct in enumerate(corrections, 1):
        affine, values = correct if isinstance(correct, Affine) else None, scores
        if affine is not None:
            same = affine.unscaled_bias.dtype == torch.float32
            out = scores if place == len(corrections) else memory("corrected", scores.size).view(scores.shape).numpy()
            values = affine.unscaled_array(scores, slice(None), out if same else None)
        errors = exact.error(affine)
        lists = [exact.list_of_one(asked[row : row + 1], own, errors[row], affine) for row, own in enumerate(values)]
        exactly, positions = (torch.from_numpy(np.stack(parts)) for parts in zip(*lists, strict=True))
        found.append(_scaled((exactly, positions), correct))
    return found


def held_at_once(queries: VectorSource) -> int:
    return min(QUERIES_HELD, max(1, HELD_ELEMENTS // queries.shape[1]))


def _scaled(best: Best, correct: TileCorrection | None) -> Best:
    """The lists with values that an `Affine` has not divided by its factor."""
    if isinstance(correct, Affine) and correct.factor != 1.0:
        return best[0] * correct.factor, best[1]
    return best


def blocks(held: Tensor, threads: int = 1) -> list[slice]:
    """Which queries (b, D) are taken together: on a CPU at least one block for each thread."""
    return ranges(len(held), GPU_TILE_QUERIES if held.is_cuda else min(TILE_QUERIES, -(-len(held) // threads)))


def item_tiles(held: Tensor, items: VectorSource) -> Iterator[tuple[slice, Products]]:
    """(items, some of the queries, memory -> their scores (b, m)) of tiles of all items, in order."""
    for tile in ranges(len(items), GPU_TILE_ITEMS if held.is_cuda else TILE_ITEMS):
        yield tile, scoring(items, tile.start, tile.stop, held)


def ranges(count: int, width: int) -> list[slice]:
    """All of so many rows, of so many at a time."""
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


class ScoreColumns:
    """The scores (R, M) of all reference queries, block by block over the items, anew at each call.

    items: M. scores: R·M. on_cpu: whether they are computed there. reference: the queries' vectors (R, D), none where
    scores are given.
    """

    def __init__(self, reference: VectorSource, items: VectorSource, device: torch.device | None):
        self._buffer, self._items = MatrixBuffer(), items
        self._width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(reference))
        self._given = reference if isinstance(reference, GivenScores) else None
        self.reference = reference.rows(0, 0 if self._given else len(reference)).to(device)
        self.items, self.scores = len(items), len(reference) * len(items)
        self.on_cpu = self.reference.device.type == "cpu"
        self._queries = len(reference)

    def __call__(self) -> Iterator[Tensor]:
        """Blocks (R, m) of all items in order."""
        return self.blocks()

    def blocks(self, share: float = 1.0) -> Iterator[Tensor]:
        """Blocks (R, m) of the first items of each block; share: how many of its items."""
        with bar("scoring the reference", total=int(self.scores * share), **BAR) as steps:
            for start in range(0, self.items, self._width):
                width = min(self._width, self.items - start)
                block = self._block(start, start + max(1, math.ceil(share * width)))
                yield block
                steps.update(block.numel())

    @property
    def float32_on_cuda(self) -> bool:
        """Whether they are scores of float32 vectors that are read on a CUDA device."""
        if self._given is not None or self.reference.device.type != "cuda":
            return False
        few = self._items.rows(0, 0)
        return few.device == self.reference.device and few.dtype == self.reference.dtype == torch.float32

    def vectors(self) -> Iterator[Tensor]:
        """The vectors (m, D) of all items in order, block by block, beside the reference."""
        width = max(1, COLUMN_ELEMENTS // self.reference.shape[1])
        with bar("scoring the reference", total=self.scores, **BAR) as steps:
            for start in range(0, self.items, width):
                block = self._items.rows(start, min(start + width, self.items)).to(self.reference)
                yield block
                steps.update(self._queries * len(block))

    def _block(self, start: int, stop: int) -> Tensor:
        """The scores (R, m) with some items; the next block overwrites them."""
        scores = self._buffer.matrix(stop - start, self._queries, self.reference)
        if self._given is not None:
            scores.copy_(self._given.columns(start, stop).T)
            return scores.T
        block = self._items.rows(start, stop).to(self.reference)
        if min(len(block), len(self.reference)) < NARROW:
            wide = torch.mm(at_least(NARROW, block), at_least(NARROW, self.reference).T)
            scores.copy_(wide[: len(block), : len(self.reference)])
        else:
            torch.mm(block, self.reference.T, out=scores)
        return scores.T


def score_columns(reference: VectorSource, items: VectorSource, device: torch.device | None = None) -> ScoreColumns:
    """The scores (R, M) of all reference queries with all items.

    A column is contiguous in memory, since reductions over the queries run along it. Each block overwrites the last.
    device: where scores are computed; None: the device of the reference queries.
    """
    return ScoreColumns(reference, items, device)


def row_blocks(queries: VectorSource, items: VectorSource) -> Iterator[Iterator[Tensor]]:
    """For each block of queries in turn, the blocks (b, m) of their scores that cover all items in order."""
    height = held_at_once(queries)
    for first in range(0, len(queries), height):
        held = queries.rows(first, min(first + height, len(queries)))
        width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(held))
        starts = range(0, len(items), width)
        yield (scoring(items, start, min(start + width, len(items)), held)(held, None) for start in starts)


class Corrected:
    """Tiles of scores under several corrections in turn; None: the plain scores."""

    def __init__(self, corrections: Sequence[TileCorrection | None]):
        self._corrections = corrections
        self._buffer = MatrixBuffer()

    def of(self, scores: Tensor, rows: slice, columns: slice) -> Iterator[Tensor]:
        """The corrected scores (b, m) of each correction in turn; those of an `Affine` are divided by its factor.

        Each overwrites the one before, and the last one overwrites the scores themselves.
        """
        for place, correct in enumerate(self._corrections, 1):
            out = scores if place == len(self._corrections) else None
            yield scores if correct is None else self._one(correct, scores, rows, columns, out)

    def _one(self, correct: TileCorrection, scores: Tensor, rows: slice, columns: slice, out: Tensor | None) -> Tensor:
        if isinstance(correct, Affine):
            dtype = torch.result_type(scores, correct.bias)
            return correct.unscaled(scores, columns, self._memory(out, scores, dtype))
        whole = scores
        for strip in _strips(scores):
            values = correct(scores[strip], slice(rows.start + strip.start, rows.start + strip.stop), columns)
            if strip.start == 0:
                whole = self._memory(out, scores, values.dtype)
            whole[strip] = values
        return whole

    def _memory(self, out: Tensor | None, scores: Tensor, dtype: torch.dtype) -> Tensor:
        if out is not None and out.dtype == dtype:
            return out
        return self._buffer.matrix(len(scores), scores.shape[1], scores, dtype)


def _strips(scores: Tensor) -> Iterator[slice]:
    """Rows of (b, m) that are corrected together; on a GPU all of them, since it is faster with few, large steps."""
    height = len(scores) if scores.is_cuda else max(1, STRIP_ELEMENTS // scores.shape[1])
    for top in range(0, len(scores), height):
        yield slice(top, min(top + height, len(scores)))


class MatrixBuffer:
    """Memory for one matrix at a time, reused: touching fresh memory costs more than the arithmetic done in it."""

    def __init__(self) -> None:
        self._held: Tensor | None = None

    def matrix(self, rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialised matrix beside `like`, of its type or dtype, in the memory of the one given before."""
        size, dtype = rows * columns, dtype or like.dtype
        if self._held is None or len(self._held) < size or self._held.dtype != dtype:
            self._held = like.new_empty(size, dtype=dtype)
        return self._held[:size].view(rows, columns)
