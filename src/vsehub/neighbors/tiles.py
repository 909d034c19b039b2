"""Exact inner-product search, plain and corrected, from scores computed tile by tile in bounded memory."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.io.progress import bar
from vsehub.metrics.topk import Best, with_block
from vsehub.neighbors.given import GivenScores, scoring
from vsehub.neighbors.rounded import NARROW, at_least
from vsehub.neighbors.vectors import VectorSource

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
    total, corrected = (len(queries) - start) * len(items), Corrected(corrections)
    with bar("searching", total=total, **BAR) as steps:
        height = held_at_once(queries)
        for first in range(start, len(queries), height):
            held = queries.rows(first, min(first + height, len(queries)))
            running: list[dict[int, Best]] = [{} for _ in corrections]
            for rows, columns, scores in tiles(held, items):
                within = slice(first + rows.start, first + rows.stop)
                for best, values in zip(running, corrected.of(scores, within, columns), strict=True):
                    best[rows.start] = with_block(best.get(rows.start), values, columns.start, k)
                steps.update(scores.numel())
            yield first, [_whole(best, correct) for best, correct in zip(running, corrections, strict=True)]


def held_at_once(queries: VectorSource) -> int:
    return min(QUERIES_HELD, max(1, HELD_ELEMENTS // queries.shape[1]))


def _whole(best: dict[int, Best], correct: TileCorrection | None) -> Best:
    """The lists of all blocks of rows, in order."""
    values, positions = (torch.cat(side) for side in zip(*best.values(), strict=True))
    return (values * correct.factor if isinstance(correct, Affine) else values), positions


def tiles(held: Tensor, items: VectorSource) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows of `held`, items, scores (b, m)) of tiles that cover all scores; each query meets the items in order.

    The next tile overwrites the scores.
    """
    gpu, buffer = held.is_cuda, MatrixBuffer()
    height, width = (GPU_TILE_QUERIES, GPU_TILE_ITEMS) if gpu else (TILE_QUERIES, TILE_ITEMS)
    for start in range(0, len(items), width):
        stop = min(start + width, len(items))
        scored = scoring(items, start, stop, held)
        for top in range(0, len(held), height):
            rows = slice(top, min(top + height, len(held)))
            scores = buffer.matrix(rows.stop - top, stop - start, held)
            yield rows, slice(start, stop), scored(held[rows], scores)


def score_columns(
    reference: VectorSource, items: VectorSource, device: torch.device | None = None
) -> Callable[[], Iterator[Tensor]]:
    """A function that yields the scores (R, m) of all reference queries, block by block over the items, at each call.

    A column is contiguous in memory, since reductions over the queries run along it. Each block overwrites the last.
    device: where scores are computed; None: the device of the reference queries.
    """
    buffer = MatrixBuffer()
    width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(reference))
    given = reference if isinstance(reference, GivenScores) else None
    held = reference.rows(0, 0 if given else len(reference)).to(device)

    def columns() -> Iterator[Tensor]:
        total = len(reference) * len(items)
        with bar("scoring the reference", total=total, **BAR) as steps:
            for start in range(0, len(items), width):
                stop = min(start + width, len(items))
                scores = buffer.matrix(stop - start, len(reference), held)
                if given is None:
                    block = items.rows(start, stop).to(held)
                    if min(len(block), len(held)) < NARROW:
                        wide = torch.mm(at_least(NARROW, block), at_least(NARROW, held).T)
                        scores.copy_(wide[: len(block), : len(held)])
                    else:
                        torch.mm(block, held.T, out=scores)
                else:
                    scores.copy_(given.columns(start, stop).T)
                yield scores.T
                steps.update(scores.numel())

    return columns


def row_blocks(queries: VectorSource, items: VectorSource) -> Iterator[Iterator[Tensor]]:
    """For each block of queries in turn, the blocks (b, m) of their scores that cover all items in order."""
    height = held_at_once(queries)
    for first in range(0, len(queries), height):
        held = queries.rows(first, min(first + height, len(queries)))
        width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(held))
        starts = range(0, len(items), width)
        yield (scoring(items, start, min(start + width, len(items)), held)(held, None) for start in starts)


class Affine:
    """The correction a·s - b(item), with fewer passes over a tile than the formula and equal results.

    scale: a. bias: b (M,).
    """

    def __init__(self, scale: float, bias: Tensor):
        self._scale, self.bias = scale, bias
        # A power of two commutes with rounding: s - b/a ranks the same, and only the best values need to be scaled.
        self.factor = scale if math.frexp(scale)[0] == 0.5 else 1.0

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self._scale * scores - self.bias[columns]

    def unscaled(self, scores: Tensor, columns: slice, out: Tensor) -> Tensor:
        """Corrected scores (b, m) divided by `factor`, in `out`."""
        if self.factor != self._scale:
            scores = torch.mul(scores, self._scale, out=out)
        return torch.sub(scores, self.bias[columns] / self.factor, out=out)


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
