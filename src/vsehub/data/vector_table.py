"""Texts that are vectors already, handed out like tokenised captions."""

import numpy as np
import torch


class VectorTable:
    """T texts as vectors (T, D) float16 or float32, in memory or memory-mapped."""

    def __init__(self, vectors: np.ndarray):
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    @property
    def lengths(self) -> np.ndarray:
        """(T,) int64, all 1: a vector is one thing."""
        return np.ones(len(self), dtype=np.int64)

    def batch(self, indices: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
        """The texts `indices` (N,) as vectors (N, D) and lengths (N,) int64."""
        rows = torch.from_numpy(np.ascontiguousarray(self.vectors[indices]))
        return rows, torch.ones(len(rows), dtype=torch.int64)
