"""The k largest of rows that come in pieces."""

from collections.abc import Iterable

import torch
from torch import Tensor

from vsehub.metrics.topk import top_k


def top_k_of_blocks(blocks: Iterable[Tensor], k: int) -> tuple[Tensor, Tensor]:
    """Values and columns (b, k) of each row's k largest over blocks (b, m) that stand side by side.

    Largest first; of equal values the lower column; all columns where there are fewer than k.
    """
    best, first = None, 0
    for block in blocks:
        best = with_block(best, block, first, k)
        first += block.shape[1]
    return best


def with_block(best: tuple[Tensor, Tensor] | None, block: Tensor, first: int, k: int) -> tuple[Tensor, Tensor]:
    """The best so far and a block (b, m) whose first column is `first`, beyond all before it, made one."""
    values, columns = top_k(block, min(k, block.shape[1]))
    columns = columns + first
    if best is None:
        return values, columns
    # What was kept comes first and has the lower columns, so that equal values keep their order.
    values = torch.cat((best[0], values), dim=1)
    values, order = top_k(values, min(k, values.shape[1]))
    return values, torch.cat((best[1], columns), dim=1).gather(1, order)
