"""The k largest of rows that come in pieces."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vsehub.metrics.topk import top_k

# Columns are looked at by the maxima of groups: few groups hold a value that enters the k largest.
GROUP = 32
# Where more than this share of the groups hold one, the block's own k largest are found sooner.
MOST_ENTERED = 0.6

Best = tuple[Tensor, Tensor]


def top_k_of_blocks(blocks: Iterable[Tensor], k: int) -> Best:
    """Values and columns (b, k) of each row's k largest over blocks (b, m) that stand side by side.

    Largest first; of equal values the lower column; all columns where there are fewer than k.
    """
    best, first = None, 0
    for block in blocks:
        best = with_block(best, block, first, k)
        first += block.shape[1]
    return best


def with_block(best: Best | None, block: Tensor, first: int, k: int) -> Best:
    """The best so far and a block (b, m) whose first column is `first`, beyond all before it, made one."""
    whole = block.shape[1] // GROUP * GROUP
    if 0 < whole < block.shape[1]:
        best = with_block(best, block[:, :whole], first, k)
        return with_block(best, block[:, whole:], first + whole, k)
    later = _entering(block, k, None if best is None else best[0])
    if later is None:
        values, columns = top_k(block, min(k, block.shape[1]))
        return _joined(best, (values, columns + first), k)
    rows, values, columns = later
    if len(rows) == len(block):
        return _joined(best, (values, columns + first), k)
    if len(rows) == 0:
        return best
    values, columns = _joined((best[0][rows], best[1][rows]), (values, columns + first), k)
    return best[0].index_copy(0, rows, values), best[1].index_copy(0, rows, columns)


def _joined(best: Best | None, later: Best, k: int) -> Best:
    """The k best of both; `later` has higher columns, equal values of it stand in their order."""
    values, columns = later if best is None else (torch.cat(sides, dim=1) for sides in zip(best, later, strict=True))
    values, order = top_k(values, min(k, values.shape[1]))
    return values, columns.gather(1, order)


def _entering(block: Tensor, k: int, kept: Tensor | None) -> tuple[Tensor, Tensor, Tensor] | None:
    """What of a block (b, m) may be among the k largest: rows (n,) of it, and (n, w) values and columns of each.

    In the order of the columns, short lines end in -inf. kept: the k largest values so far. None where this is most of
    the block, or less than k values are known.
    """
    groups = block.shape[1] // GROUP
    if groups < (k if kept is None else 1) or (kept is not None and kept.shape[1] < k):
        return None
    grouped = block.unflatten(1, (groups, GROUP))
    maxima = grouped.amax(dim=2)
    if kept is None:  # k groups reach the k-th largest maximum; a NaN is above all numbers
        least = maxima.topk(k, dim=1).values[:, -1:]
        below = torch.lt
    else:  # what equals the k-th value kept has a higher column and stays out
        least = kept[:, -1:]
        below = torch.le
    rows, group = below(maxima, least).logical_not_().nonzero(as_tuple=True)
    if len(rows) > MOST_ENTERED * maxima.numel():
        return None
    values = grouped[rows, group]
    at, place = below(values, least[rows]).logical_not_().nonzero(as_tuple=True)
    return _lines(rows[at], values[at, place], group[at] * GROUP + place)


def _lines(rows: Tensor, values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct rows (n,), and for each a line (n, w) of its values and columns, from (e,) of each in order."""
    distinct, line, counts = rows.unique_consecutive(return_inverse=True, return_counts=True)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[line]
    shape = len(distinct), int(counts.max()) if len(counts) else 0
    padded = values.new_full(shape, -torch.inf), columns.new_zeros(shape)
    padded[0][line, place], padded[1][line, place] = values, columns
    return distinct, *padded
