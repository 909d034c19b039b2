"""Exact inner-product search, plain and corrected, from scores computed tile by tile in bounded memory."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeGuard

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.io.progress import bar
from vsehub.neighbors import screened
from vsehub.neighbors.topk import Best, joined, with_block
from vsehub.neighbors.vectors import NARROW, Affine, TileCorrection, UnitVectors, VectorSource, products, scoring

TILE_QUERIES, TILE_ITEMS = 512, 4096  # of a CPU, whose cache holds their scores
GPU_TILE_QUERIES, GPU_TILE_ITEMS = 4096, 32768  # few, large products: 512 MB of float32 scores
# Queries in memory during one pass over the items; with more queries, the items are read and normalised less often.
QUERIES_AT_ONCE = 16384
QUERY_ELEMENTS = 2**27  # rows of precomputed scores may be wide: at most 512 MB of float32
COLUMN_ELEMENTS = 2**25  # scores of all reference queries with some items: 128 MB of float32
BAR: dict[str, Any] = {"unit": " scores", "unit_scale": True}


def nearest(
    queries: VectorSource,
    items: VectorSource,
    k: int,
    corrections: Sequence[TileCorrection | None] = (None,),
    exclude_self: bool = False,
) -> list[Best]:
    """Values and positions (Q, k), best first, for each correction (None: the plain scores).

    Corrections of one kind share a product of queries and items. Among equal values the lower position comes first.
    exclude_self: True if the queries are the items, each of which is left out of its own list. Raises InputError if k
    exceeds the number of items, or of other items.
    """
    parts = [lists for _, lists in nearest_blocks(queries, items, k, corrections, exclude_self)]
    return [joined(blocks) for blocks in zip(*parts, strict=True)]


def nearest_blocks(
    queries: VectorSource,
    items: VectorSource,
    k: int,
    corrections: Sequence[TileCorrection | None] = (None,),
    exclude_self: bool = False,
) -> Iterator[tuple[int, list[Best]]]:
    """(first query, the result of `nearest` for these queries), QUERIES_AT_ONCE queries at a time."""
    most, depth = len(items) - exclude_self, k + exclude_self
    require(0 < k <= most, f"k is {k}; expected 1 to {most}, the number of {'other ' if exclude_self else ''}items")
    with bar("searching", total=len(queries) * len(items), **BAR) as steps:
        height = queries_at_once(queries)
        for first in range(0, len(queries), height):
            block = queries.rows(first, min(first + height, len(queries)))
            applies = screened.applies(block, items, depth)
            affine = {number: correct for number, correct in enumerate(corrections) if applies and _screens(correct)}
            others = {number: correct for number, correct in enumerate(corrections) if number not in affine}
            best_of: dict[int, Best] = {}
            if others:
                best_of |= zip(
                    others, _search(block, first, items, depth, [*others.values()], steps.update), strict=True
                )
            if affine:
                advance = steps.update if not others else lambda _: None  # `_search` has counted the scores
                searched = screened.search(block, items, depth, [*affine.values()], advance)
                best_of |= zip(affine, searched, strict=True)
            lists = [best_of[number] for number in range(len(corrections))]
            yield first, [_without_itself(first, best) for best in lists] if exclude_self else lists


def _screens(correction: TileCorrection | None) -> TypeGuard[Affine | None]:
    """Return True if `screened.search` supports a correction."""
    return correction is None or (isinstance(correction, Affine) and correction.scale > 0)


def _search(
    block: Tensor,
    first: int,
    items: VectorSource,
    k: int,
    corrections: Sequence[TileCorrection | None],
    advance: Callable[[int], object],
) -> list[Best]:
    """The result of `nearest` for some queries (b, D), from all scores. first: the number of the first query."""
    parts = ranges(len(block), GPU_TILE_QUERIES if block.is_cuda else TILE_QUERIES)
    lists: list[dict[int, Best]] = [{} for _ in corrections]
    for columns in ranges(len(items), GPU_TILE_ITEMS if block.is_cuda else TILE_ITEMS):
        score = scoring(items, columns.start, columns.stop, block)
        for rows in parts:
            scores = score(block[rows], None)
            numbers = slice(first + rows.start, first + rows.stop)
            for best, correct in zip(lists, corrections, strict=True):
                values = scores if correct is None else correct(scores, numbers, columns)
                best[rows.start] = with_block(best.get(rows.start), values, columns.start, k)
            advance(scores.numel())
    return [joined(best.values()) for best in lists]


def _without_itself(first: int, best: Best) -> Best:
    """Lists (b, k) of the items from `first` on without each item itself, from lists (b, k + 1) of all items."""
    values, positions = best
    itself = positions == torch.arange(first, first + len(positions), device=positions.device)[:, None]
    itself[:, -1] |= ~itself.any(dim=1)  # an item with many copies, or a hub that is corrected, may not be in its list
    shape = len(positions), positions.shape[1] - 1
    return values[~itself].reshape(shape), positions[~itself].reshape(shape)


def queries_at_once(queries: VectorSource) -> int:
    """The number of queries in memory during one pass over the items."""
    return min(QUERIES_AT_ONCE, max(1, QUERY_ELEMENTS // queries.shape[1]))


def ranges(count: int, width: int) -> list[slice]:
    """Slices of `width` rows that cover `count` rows; the last may be shorter."""
    return [slice(start, min(start + width, count)) for start in range(0, count, width)]


class ScoreColumns:
    """The scores (R, M) of all reference queries in blocks of columns, computed anew at each call.

    A block is overwritten by the next. A column is contiguous in memory, since reductions over the queries run along
    it. device: device of the scores; None: that of the reference queries. exclude_self: True if the reference is the
    items themselves, and a column is to hold the scores (M - 1,) of the other items, in any order. The attribute
    `reference` has the reference vectors (R, D), no row if scores are precomputed; `items` the items; `width` the
    number of items in a block.
    """

    def __init__(
        self,
        reference: VectorSource,
        items: VectorSource,
        device: torch.device | None = None,
        exclude_self: bool = False,
    ):
        self._exclude_self = exclude_self
        self._precomputed: Any = reference if isinstance(items, UnitVectors) else None
        self.reference = reference.rows(0, len(reference) if self._precomputed is None else 0).to(device)
        self.items, self.width = items, max(NARROW, COLUMN_ELEMENTS // len(reference))
        self._scores = len(reference) * len(items)

    def __call__(self) -> Iterator[Tensor]:
        """Blocks (R, m) of all items in order."""
        width = min(self.width, len(self.items)) if self._precomputed is None else 0
        memory = self.reference.new_empty(width, len(self.reference))
        with bar("scoring the reference", total=self._scores, **BAR) as steps:
            for tile in ranges(len(self.items), self.width):
                if self._precomputed is not None:
                    block = self._precomputed.columns(tile.start, tile.stop).to(self.reference).T.contiguous()
                else:
                    rows = self.items.rows(tile.start, tile.stop).to(self.reference)
                    block = products(self.reference)(rows, memory[: len(rows)])
                if self._exclude_self:  # the score with the last item takes the place of that with the item itself
                    here = torch.arange(len(block), device=block.device)
                    block[here, tile.start + here] = block[:, -1].clone()
                    block = block[:, :-1]
                yield block.T
                steps.update(block.numel())


def row_blocks(queries: VectorSource, items: VectorSource) -> Iterator[Iterator[Tensor]]:
    """For each block of queries in turn, the blocks (b, m) of their scores that cover all items in order."""
    height = queries_at_once(queries)
    for first in range(0, len(queries), height):
        block = queries.rows(first, min(first + height, len(queries)))
        width = max(NARROW, COLUMN_ELEMENTS // len(block))
        starts = range(0, len(items), width)
        yield (scoring(items, start, min(start + width, len(items)), block)(block, None) for start in starts)
