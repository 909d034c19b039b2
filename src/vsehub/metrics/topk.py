"""The k largest of each row, ties settled, and how many reach a value."""

import torch
from torch import Tensor

GROUPS_FOR_EACH = 8  # groups of columns for each of the k + 1 sought, below which looking at maxima first saves nothing
GROUP = 32


def top_k(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Values and columns (Q, k) of each row's k largest, largest first; of equal scores the lower column comes first.

    A NaN counts as larger than any number. Only rows in which the k-th and the next value are equal are sorted whole.
    """
    width = scores.shape[1]
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


def largest(scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """`scores.topk(count)`, ties as they fall; wide rows are searched in the groups of columns with the largest maxima.

    Outside of `count` groups no value exceeds the least of their maxima, so that the values are always topk's.
    """
    groups = scores.shape[1] // GROUP
    if groups < GROUPS_FOR_EACH * count:
        return scores.topk(count, dim=1)
    whole = groups * GROUP
    # Group g is columns g, g + groups, g + 2 groups, ...: the maxima are then taken of whole stretches of memory.
    maxima = scores[:, :whole].unflatten(1, (GROUP, groups)).amax(dim=1)
    nearest = maxima.topk(count, dim=1, sorted=False).indices
    within = torch.arange(0, whole, groups, device=scores.device)
    rest = torch.arange(whole, scores.shape[1], device=scores.device).expand(len(scores), -1)
    candidates = torch.cat(((nearest[:, :, None] + within).flatten(1), rest), dim=1)
    values, places = scores.gather(1, candidates).topk(count, dim=1)
    return values, candidates.gather(1, places)


def at_least(scores: Tensor, least: Tensor) -> Tensor:
    """How many of each row (b, M) are >= the row's `least` (b,)."""
    # Ones in floating point are added up several times as fast as booleans, and exactly while they fit the mantissa.
    ones = torch.float32 if scores.shape[1] < 2**24 else torch.float64
    reached = torch.empty(scores.shape, dtype=ones, device=scores.device)
    return torch.ge(scores, least[:, None], out=reached).sum(dim=1).long()
