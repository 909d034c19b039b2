"""Whole rows of scores on demand, for criteria that match: of a matrix, or of the inner products of two sides."""

from collections.abc import Callable

import torch
from torch import Tensor

from vsehub.checks import matrix, require
from vsehub.criteria.candidates import RowsOf
from vsehub.metrics.topk import top_k
from vsehub.neighbors.rows import Rows

ITEMS_AT_ONCE = 2**16


def widened(scores: Tensor) -> Tensor:
    """Scores in float32 at least, apart from any graph."""
    return scores.detach().float() if scores.dtype in (torch.float16, torch.bfloat16) else scores.detach()


def rows_of(scores: Tensor) -> RowsOf:
    """The rows of (Q, M) scores; neighbouring ones without a copy. Raises InputError where it is no such matrix."""
    matrix("scores", scores)
    require(scores.is_floating_point(), f"scores holds {scores.dtype} numbers; expected floating-point scores")

    def rows(index: Tensor) -> Tensor:
        first, last = int(index[0]), int(index[-1]) + 1
        return widened(scores[first:last] if last - first == len(index) else scores[index.to(scores.device)])

    return rows


def product_rows(queries: Rows, items: Rows, correct: Callable[[Tensor], Tensor]) -> RowsOf:
    """The rows of the inner products of (Q, D) queries and (M, D) items, corrected: (b, M) -> (b, M)."""
    held = queries.rows(0, len(queries))

    def rows(index: Tensor) -> Tensor:
        asked = held[index.to(held.device)]
        scores = torch.empty(len(asked), len(items), dtype=held.dtype, device=held.device)
        for start in range(0, len(items), ITEMS_AT_ONCE):
            block = items.rows(start, min(start + ITEMS_AT_ONCE, len(items))).to(held)
            torch.mm(asked, block.T, out=scores[:, start : start + len(block)])
        return correct(scores)

    return rows


class Noted:
    """Rows as they are asked for, the `depth` best items of each query noted as they pass."""

    def __init__(self, rows: RowsOf, queries: int, items: int, depth: int):
        self._rows, self._queries, self._items, self._depth = rows, queries, items, depth
        self._values = self._positions = None

    def __call__(self, index: Tensor) -> Tensor:
        scores = self._rows(index)
        if self._values is None:
            self._values = scores.new_empty(self._queries, self._depth)
            self._positions = torch.full((self._queries, self._depth), -1, device=scores.device)
        new = self._positions[index.to(scores.device), 0] < 0
        if new.any():
            which = index.to(scores.device)[new]
            self._values[which], self._positions[which] = top_k(scores if new.all() else scores[new], self._depth)
        return scores

    def with_pairs(self, pairs: Tensor, scores: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of each query its noted items and those of (query, item) pairs (n, 2), whose scores (n,) are given.

        Returns scores (Q, w), the positions they belong to, rising, and the pairs as row and column of these. What is
        left of the width has score -inf and a position past the last item.
        """
        order = pairs[:, 0].argsort(stable=True)
        (query, item), scores = pairs[order].T, scores[order]
        counts = torch.bincount(query, minlength=self._queries)
        nth = torch.arange(len(query), device=query.device) - (counts.cumsum(0) - counts)[query]
        paired = torch.full((self._queries, int(counts.max())), self._items, device=query.device)
        paired[query, nth] = item
        values = self._values.new_full(paired.shape, -torch.inf)
        values[query, nth] = scores.to(values)
        values, positions = _sorted(torch.cat((self._values, values), 1), torch.cat((self._positions, paired), 1))
        twice = torch.zeros_like(positions, dtype=torch.bool)
        twice[:, 1:] = positions[:, 1:] == positions[:, :-1]
        values, positions = _sorted(values.masked_fill(twice, -torch.inf), positions.masked_fill(twice, self._items))
        column = torch.searchsorted(positions, paired)[query, nth]
        return values, positions, torch.stack((query, column), dim=1)


def _sorted(values: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Both by rising position; of one position what came first stays first."""
    positions, order = positions.sort(dim=1, stable=True)
    return values.gather(1, order), positions
