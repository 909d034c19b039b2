"""Exact inner-product search in torch, in blocks: the oracle and the fallback where FAISS is absent."""

import torch
from torch import Tensor

from vsehub.checks import matrix, require

BLOCK_ELEMENTS = 2**25  # 128 MB of float32 scores at a time


class ExactIndex:
    """Inner-product search over (M, D) vectors on whatever device they are; scores are float32 at least."""

    def __init__(self, vectors: Tensor):
        matrix("vectors", vectors)
        self.vectors = vectors

    def __len__(self) -> int:
        return len(self.vectors)

    def search(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Similarities and positions (Q, k) of the k nearest of each query (Q, D), largest similarity first.

        Raises InputError where dimensions differ or k exceeds the vectors.
        """
        check_query(queries, self.vectors.shape[1], k, len(self))
        found = [
            (block @ self.vectors.T).topk(k, dim=1) for block in queries.split(max(1, BLOCK_ELEMENTS // len(self)))
        ]
        return torch.cat([part.values for part in found]), torch.cat([part.indices for part in found])


def check_query(queries: Tensor, dimensions: int, k: int, size: int) -> None:
    """Raise InputError unless the queries (Q, D) and k fit an index of `size` vectors of `dimensions`."""
    matrix("queries", queries, columns=dimensions)
    require(0 < k <= size, f"k is {k}; expected 1 to {size}, the number of vectors in the index")
