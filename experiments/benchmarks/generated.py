"""Vectors with hubs, made block by block: a few wide directions, clusters and an offset that all share."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

CLUSTERS, FALL, WITHIN, OFFSET = 2000, 0.7, 1.5, 0.7
BLOCK = 20_000


def blocks(rows: int, dim: int, seed: int) -> Iterator[Tensor]:
    """Unit vectors (b, dim), rows in all; another seed gives other vectors around the same centres."""
    spread = torch.arange(1, dim + 1).pow(-FALL)
    spread /= spread.norm()
    fixed = torch.Generator().manual_seed(0)
    centres = torch.randn(CLUSTERS, dim, generator=fixed) * spread
    offset = OFFSET * torch.nn.functional.normalize(torch.randn(dim, generator=fixed), dim=0)
    generator = torch.Generator().manual_seed(seed)
    for start in range(0, rows, BLOCK):
        count = min(BLOCK, rows - start)
        chosen = centres[torch.randint(CLUSTERS, (count,), generator=generator)]
        vectors = chosen + WITHIN * torch.randn(count, dim, generator=generator) * spread + offset
        yield torch.nn.functional.normalize(vectors, dim=1)


def vectors(rows: int, dim: int, seed: int) -> Tensor:
    """All of `blocks`, (rows, dim)."""
    return torch.cat(list(blocks(rows, dim, seed)))


def write(path: Path, rows: int, dim: int, seed: int) -> None:
    """A numpy file of (rows, dim) float16, never held whole."""
    target = np.lib.format.open_memmap(path, "w+", np.float16, (rows, dim))
    start = 0
    for block in blocks(rows, dim, seed):
        target[start : start + len(block)] = block.half().numpy()
        start += len(block)
    target.flush()
