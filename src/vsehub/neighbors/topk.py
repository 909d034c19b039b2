"""The k largest values of each row of a matrix or of blocks of its columns; ties go to the lower column."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail

GROUPS_FOR_EACH = 8  # with fewer groups of columns for each of the k + 1 values, taking maxima first saves no time
GROUP = 32  # a power of two
Best = tuple[Tensor, Tensor]


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
    """The k largest values, and their columns, of the best so far and of a block (b, m) of later columns.

    first: the column that the block begins with. Returns fewer than k where there are fewer columns.
    """
    values, columns = top_k(block, min(k, block.shape[1]))
    if best is None:
        return values, columns + first
    values, order = top_k(torch.cat((best[0], values), dim=1), min(k, best[0].shape[1] + values.shape[1]))
    return values, torch.cat((best[1], columns + first), dim=1).gather(1, order)


def joined(parts: Iterable[tuple[Tensor, ...]]) -> Any:
    """One tuple of tensors from those of several parts, such as values and columns (b, k) of some queries each."""
    return tuple(torch.cat(pieces) for pieces in zip(*parts, strict=True))


def largest(scores: Tensor, count: int) -> Best:
    """`scores.topk(count)`, with ties in any order; wide rows are searched only in the groups with the largest maxima.

    No value outside of these `count` groups exceeds the least of their maxima, so the values always equal topk's.
    """
    groups = scores.shape[1] // GROUP
    if groups < GROUPS_FOR_EACH * count:
        return _topk(scores, count)
    whole = groups * GROUP
    # Group g is columns g, g + groups, g + 2 groups, ...: the maxima are then taken of whole stretches of memory.
    _, nearest = _topk(scores[:, :whole].unflatten(1, (GROUP, groups)).amax(dim=1), count)
    offsets = torch.arange(0, whole, groups, device=scores.device)
    rest = torch.arange(whole, scores.shape[1], device=scores.device).expand(len(scores), -1)
    candidates = torch.cat(((nearest[:, :, None] + offsets).flatten(1), rest), dim=1)
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


def at_least(scores: Tensor, least: Tensor) -> Tensor:
    """The number (b,) of entries of each row (b, M) that are at least the row's `least` (b,)."""
    if _in_numpy(scores):
        values, limits = scores.numpy(), least.detach().numpy()[:, None]
        reached = np.greater_equal(values, limits)  # row by row numpy counts several booleans at once
        return torch.from_numpy(np.fromiter(map(np.count_nonzero, reached), np.int64, len(reached)))
    # Floating-point ones are summed several times as fast as booleans, and exactly while the sum fits the mantissa.
    dtype = torch.float32 if scores.shape[1] < 2**24 else torch.float64
    entries = torch.empty(scores.shape, dtype=dtype, device=scores.device)
    return torch.ge(scores, least[:, None], out=entries).sum(dim=1).long()
