"""Means of the k largest entries of each row among those that count."""

import torch
from torch import Tensor


def mean_of_largest(values: Tensor, counted: Tensor, k: int) -> Tensor:
    """Each row's mean of its k largest counted entries; of all where they are fewer, 0 where there is none.

    values: (R, C). counted: (R, C) boolean. Returns (R,).
    """
    largest, valid, _ = _largest(values, counted, k)
    return largest.sum(dim=1) / valid.sum(dim=1).clamp(min=1)


def mean_of_the_other_largest(values: Tensor, counted: Tensor, k: int) -> Tensor:
    """For each entry, `mean_of_largest` of its row with the entry itself left out: (R, C) -> (R, C)."""
    largest, valid, columns = _largest(values, counted, k + 1)
    first = largest[:, :k].sum(dim=1) / valid[:, :k].sum(dim=1).clamp(min=1)
    # Only an entry among the k + 1 largest changes the mean by leaving: the next one takes its place.
    without = largest.sum(dim=1, keepdim=True) - largest
    remaining = valid.sum(dim=1, keepdim=True) - valid.to(values.dtype)
    return first[:, None].expand_as(values).scatter(1, columns, without / remaining.clamp(min=1))


def _largest(values: Tensor, counted: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest counted entries of each row, 0 where there are fewer; which of them are real; their columns."""
    k = min(k, values.shape[1])
    largest, columns = values.masked_fill(~counted, -torch.inf).topk(k, dim=1)
    valid = counted.gather(1, columns)
    return largest.masked_fill(~valid, 0.0), valid, columns
