"""The k best items of every query, from inner products computed tile by tile: exact, in bounded memory."""

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor
from tqdm import tqdm

from vsehub.checks import require
from vsehub.neighbors.corrections import Affine, Corrected, Correction, Scratch
from vsehub.neighbors.rows import Rows
from vsehub.neighbors.running import Best, with_block

# A tile of scores that stays in a core's cache is read many times at little cost.
TILE_QUERIES, TILE_ITEMS = 512, 4096
# A GPU wants few, large products: 512 MB of float32 scores at a time.
GPU_TILE_QUERIES, GPU_TILE_ITEMS = 4096, 32768
# How many queries are held while the items pass once: items are read, widened and normalised that much less often.
QUERIES_HELD = 16384

# Scores of all reference queries against some items: 128 MB of float32 at a time, however many queries there are.
COLUMN_ELEMENTS = 2**25
LEAST_COLUMNS = 16

BAR = {"unit": " scores", "unit_scale": True, "leave": False}


def nearest(
    queries: Rows,
    items: Rows,
    k: int,
    corrections: Sequence[Correction | None] = (None,),
    progress: str | None = None,
) -> list[tuple[Tensor, Tensor]]:
    """For each correction (None: the scores as they are) values and positions (Q, k), best first.

    All corrections share one product of queries and items. Of equal values the lower position comes first. progress:
    a label shows a bar. Raises InputError where k exceeds the items.
    """
    parts = [found for _, found in nearest_blocks(queries, items, k, corrections, progress)]
    return [
        (torch.cat([values for values, _ in blocks]), torch.cat([positions for _, positions in blocks]))
        for blocks in zip(*parts, strict=True)
    ]


def nearest_blocks(
    queries: Rows,
    items: Rows,
    k: int,
    corrections: Sequence[Correction | None] = (None,),
    progress: str | None = None,
    start: int = 0,
) -> Iterator[tuple[int, list[tuple[Tensor, Tensor]]]]:
    """(first query, what `nearest` returns for a stretch of queries), QUERIES_HELD queries at a time from `start`."""
    require(0 < k <= len(items), f"k is {k}; expected 1 to {len(items)}, the number of items")
    total, corrected = (len(queries) - start) * len(items), Corrected(corrections)
    with tqdm(total=total, desc=progress, disable=None if progress else True, **BAR) as bar:
        for first in range(start, len(queries), QUERIES_HELD):
            held = queries.rows(first, min(first + QUERIES_HELD, len(queries)))
            running: list[dict[int, Best]] = [{} for _ in corrections]
            for rows, columns, scores in tiles(held, items):
                within = slice(first + rows.start, first + rows.stop)
                for best, values in zip(running, corrected.of(scores, within, columns), strict=True):
                    best[rows.start] = with_block(best.get(rows.start), values, columns.start, k)
                bar.update(scores.numel())
            yield first, [_whole(best, correct) for best, correct in zip(running, corrections, strict=True)]


def _whole(best: dict[int, Best], correct: Correction | None) -> Best:
    """The lists of all stretches of rows, which came in order."""
    values, positions = (torch.cat(side) for side in zip(*best.values(), strict=True))
    return (values * correct.factor if isinstance(correct, Affine) else values), positions


def tiles(held: Tensor, items: Rows) -> Iterator[tuple[slice, slice, Tensor]]:
    """(rows of `held`, items, scores (b, m)): all scores of (Q, D) queries, the items in order for every query.

    The scores are overwritten by those of the next tile.
    """
    gpu, scratch = held.is_cuda, Scratch()
    height, width = (GPU_TILE_QUERIES, GPU_TILE_ITEMS) if gpu else (TILE_QUERIES, TILE_ITEMS)
    for start in range(0, len(items), width):
        stop = min(start + width, len(items))
        block = items.rows(start, stop).to(held)
        for top in range(0, len(held), height):
            rows = slice(top, min(top + height, len(held)))
            scores = scratch.matrix(rows.stop - top, stop - start, held)
            yield rows, slice(start, stop), torch.mm(held[rows], block.T, out=scores)


def score_columns(reference: Rows, items: Rows, progress: str | None = None) -> Callable[[], Iterator[Tensor]]:
    """A function that yields the scores (R, m) of all reference queries, block by block over the items, at each call.

    A column lies in one stretch of memory, so that reductions over the queries run along it. A block is overwritten by
    the next.
    """
    held, scratch = reference.rows(0, len(reference)), Scratch()
    width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(held))

    def columns() -> Iterator[Tensor]:
        with tqdm(total=len(held) * len(items), desc=progress, disable=None if progress else True, **BAR) as bar:
            for start in range(0, len(items), width):
                block = items.rows(start, min(start + width, len(items))).to(held)
                scores = scratch.matrix(len(block), len(held), held)
                yield torch.mm(block, held.T, out=scores).T
                bar.update(len(held) * len(block))

    return columns


def row_blocks(queries: Rows, items: Rows) -> Iterator[Iterator[Tensor]]:
    """For one stretch of queries after the other, the blocks (b, m) of their scores that cover all items in order."""
    for first in range(0, len(queries), QUERIES_HELD):
        held = queries.rows(first, min(first + QUERIES_HELD, len(queries)))
        width = max(LEAST_COLUMNS, COLUMN_ELEMENTS // len(held))
        starts = range(0, len(items), width)
        yield (held @ items.rows(start, min(start + width, len(items))).to(held).T for start in starts)
