"""The k largest values of each row of a matrix or of blocks of its columns; ties go to the lower column."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail

GROUPS_FOR_EACH = 8  # groups of columns for each of the k + 1 sought, below which looking at maxima first saves nothing
GROUP = 32  # a power of two
MOST_ENTERED = 0.04  # where a larger share of a block's entries is left, its own k largest are found sooner
Best = tuple[Tensor, Tensor]
Entries = tuple[Tensor, Tensor, Tensor]  # rows, values and columns (e,) of some entries of a matrix


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns (Q, k) of each row's k largest, largest first; among equal scores the lower column first.

    A NaN counts as larger than any number. Only rows whose k-th and next value are equal are sorted completely.
    """
    width = scores.shape[1]
    if width == 0:
        return scores, scores.long()
    values, columns = largest(scores, min(k + 1, width))
    equal = values[:, :-1] == values[:, 1:]
    if equal.any():
        tied = equal.any(dim=1).nonzero().squeeze(1)
        columns[tied] = columns[tied].sort(dim=1).values
        values[tied] = scores[tied[:, None], columns[tied]]
        values[tied], order = values[tied].sort(dim=1, descending=True, stable=True)
        columns[tied] = columns[tied].gather(1, order)
        if k < width:  # more columns with the k-th value may lie among those not found
            cut = tied[values[tied, k - 1] == values[tied, k]]
            for rows in cut.split(max(1, 2**24 // width)):
                columns[rows] = scores[rows].argsort(dim=1, descending=True, stable=True)[:, : k + 1]
    return values[:, :k], columns[:, :k]


def top_k_of_blocks(blocks: Iterable[Tensor], k: int) -> Best:
    """Values and columns (b, k) of each row's k largest over adjacent blocks of columns (b, m).

    Largest first; among equal values the lower column first; all columns if there are fewer than k.
    """
    best: Best | None = None
    first = 0
    for block in blocks:
        best = with_block(best, block, first, k)
        first += block.shape[1]
    if best is None:
        fail("blocks is empty; expected at least one block of scores")
    return best


def with_block(best: Best | None, block: Tensor, first: int, k: int) -> Best:
    """The best so far, merged with a block (b, m) whose first column is `first`, after all earlier columns."""
    whole = block.shape[1] // GROUP * GROUP
    if 0 < whole < block.shape[1]:
        best = with_block(best, block[:, :whole], first, k)
        return with_block(best, block[:, whole:], first + whole, k)
    found = _entering(block, k, None if best is None else best[0])
    if found is None:
        values, columns = top_k(block, min(k, block.shape[1]))
        return merged(best, (values, columns + first), k)
    rows, values, columns = _lines(*found)
    columns += first
    if best is None or len(rows) == len(block):  # of a first block all rows have some
        return merged(best, (values, columns), k)
    if len(rows) == 0:
        return best
    values, columns = merged((best[0][rows], best[1][rows]), (values, columns), k)
    return best[0].index_copy(0, rows, values), best[1].index_copy(0, rows, columns)


def merged(best: Best | None, later: Best, k: int) -> Best:
    """The k best of both (fewer where there are fewer); `later` has higher columns, and its equal values are in order.

    Each is values and columns (b, n), largest first.
    """
    values, columns = later if best is None else (torch.cat(sides, dim=1) for sides in zip(best, later, strict=True))
    values, order = top_k(values, min(k, values.shape[1]))
    return values, columns.gather(1, order)


def _entering(block: Tensor, k: int, kept: Tensor | None) -> Entries | None:
    """The entries of a block (b, m) that may be among the k largest, in the order of rows, then of columns.

    kept: the k largest values so far. Returns None if these entries are most of the block, if fewer than k values
    are known, and on a GPU, whose own top k is fast.
    """
    groups = block.shape[1] // GROUP
    if not _in_numpy(block) or groups < (k if kept is None else 1) or (kept is not None and kept.shape[1] < k):
        return None
    if kept is None:  # k groups reach the k-th largest maximum; a NaN is above all numbers
        maxima = _group_maxima(block[:, : groups * GROUP], groups)
        return _entries_from(block, _topk(maxima, k)[0][:, -1:])
    return _entries_from(block, kept[:, -1:], above=True)  # an equal entry has a higher column and loses


def _entries_from(block: Tensor, least: Tensor, above: bool = False) -> Entries | None:
    """The entries of a block (b, m) that are >= their row's `least` (b, 1), or NaN; None if they are most of the block.

    above: those that are > it, or NaN. m: a multiple of `GROUP`.
    """
    is_below = np.less_equal if above else np.less
    entered = ~is_below(block.numpy(), least.detach().numpy())  # a NaN is below nothing
    if np.count_nonzero(entered) > MOST_ENTERED * entered.size:
        return None
    rows, columns = map(torch.from_numpy, np.divmod(np.flatnonzero(entered), entered.shape[1]))
    return rows, block[rows, columns], columns


def _lines(rows: Tensor, values: Tensor, columns: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The distinct rows (n,), and for each a line (n, w) of its values and columns, from (e,) of each in order."""
    distinct, line, counts = rows.unique_consecutive(return_inverse=True, return_counts=True)
    place = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[line]
    shape = len(distinct), int(counts.max()) if len(counts) else 0
    padded = values.new_full(shape, -torch.inf), columns.new_zeros(shape)
    padded[0][line, place], padded[1][line, place] = values, columns
    return distinct, *padded


def largest(scores: Tensor, count: int) -> Best:
    """`scores.topk(count)`, with ties in any order; wide rows are searched only in the groups with the largest maxima.

    No value outside of these `count` groups exceeds the least of their maxima, so the values always equal topk's.
    """
    groups = scores.shape[1] // GROUP
    if groups < GROUPS_FOR_EACH * count:
        return _topk(scores, count)
    whole = groups * GROUP
    # Group g is columns g, g + groups, g + 2 groups, ...: the maxima are then taken of whole stretches of memory.
    _, nearest = _topk(_group_maxima(scores[:, :whole], groups), count)
    within = torch.arange(0, whole, groups, device=scores.device)
    rest = torch.arange(whole, scores.shape[1], device=scores.device).expand(len(scores), -1)
    candidates = torch.cat(((nearest[:, :, None] + within).flatten(1), rest), dim=1)
    values, places = _topk(scores.gather(1, candidates), count)
    return values, candidates.gather(1, places)


def _topk(scores: Tensor, count: int) -> Best:
    """`scores.topk(count)`, with ties in any order."""
    if not _in_numpy(scores):
        return scores.topk(count, dim=1)
    values, rest = scores.numpy(), scores.shape[1] - count
    places = torch.from_numpy(np.argpartition(values, rest, axis=1)[:, rest:])
    chosen = scores.gather(1, places)
    order = torch.from_numpy(chosen.numpy().argsort(axis=1)[:, ::-1].copy())  # as before, a NaN is above all numbers
    return chosen.gather(1, order), places.gather(1, order)


def _in_numpy(scores: Tensor) -> bool:
    """Return True if numpy can read a matrix without a copy; it partitions and sorts several times as fast on a CPU."""
    return scores.device.type == "cpu" and scores.dtype in (torch.float32, torch.float64) and not scores.requires_grad


def _group_maxima(scores: Tensor, groups: int) -> Tensor:
    """The maxima (Q, groups) of `GROUP` columns each: column g, g + groups, g + 2 groups, ..."""
    if not _in_numpy(scores):
        return scores.unflatten(1, (GROUP, groups)).amax(dim=1)
    grouped = scores.numpy().reshape(len(scores), GROUP, groups)
    return torch.from_numpy(np.maximum.reduce(grouped, axis=1))


def at_least(scores: Tensor, least: Tensor) -> Tensor:
    """The number of entries of each row (b, M) are >= the row's `least` (b,)."""
    if _in_numpy(scores):
        values, limits = scores.numpy(), least.detach().numpy()[:, None]
        reached = np.greater_equal(values, limits)  # row by row numpy counts several booleans at once
        return torch.from_numpy(np.fromiter(map(np.count_nonzero, reached), np.int64, len(reached)))
    # Floating-point ones are summed several times as fast as booleans, and exactly while the sum fits the mantissa.
    ones = torch.float32 if scores.shape[1] < 2**24 else torch.float64
    entries = torch.empty(scores.shape, dtype=ones, device=scores.device)
    return torch.ge(scores, least[:, None], out=entries).sum(dim=1).long()
