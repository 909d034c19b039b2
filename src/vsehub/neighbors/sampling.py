"""A seeded sample of vectors wherever they lie, drawn while they are read once."""

import torch
from torch import Tensor

from vsehub.neighbors.rows import Rows

BLOCK = 65536


def sampled(vectors: Rows, count: int, seed: int) -> tuple[Tensor, Tensor]:
    """`count` rows (n, D), all where there are fewer, and their positions (n,), ascending, drawn by seed."""
    drawn = torch.randperm(len(vectors), generator=torch.Generator().manual_seed(seed))[:count].sort().values
    parts = []
    for start in range(0, len(vectors), BLOCK):
        within = drawn[(drawn >= start) & (drawn < start + BLOCK)] - start
        if len(within):
            block = vectors.rows(start, min(start + BLOCK, len(vectors)))
            parts.append(block[within.to(block.device)])
    return torch.cat(parts), drawn
