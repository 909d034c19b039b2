"""Some rows of a file of vectors, left where they lie until they are asked for."""

from dataclasses import dataclass

import numpy as np
import torch

from vsehub.checks import InputError
from vsehub.data.vectors import VectorFile, row_norms

_BLOCK_ROWS = 65536
_NAMED = 5


@dataclass(frozen=True, eq=False)
class VectorRows:
    """n rows of a file that read like an array (n, D) of float32.

    file: the vectors. chosen: (n,) int64, which of its rows these are.
    """

    file: VectorFile
    chosen: np.ndarray

    def __len__(self) -> int:
        return len(self.chosen)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, D)."""
        return len(self), self.file.shape[1]

    @property
    def dtype(self) -> np.dtype:
        """What indexing gives."""
        return np.dtype(np.float32)

    def __getitem__(self, index: int | slice | np.ndarray) -> np.ndarray:
        """One row (D,) by its number, several (b, D) by a slice or numbers (b,)."""
        rows = self.chosen[index]
        return self.file.take(np.atleast_1d(rows)).numpy().reshape(*np.shape(rows), self.shape[1])

    def look_through(self) -> None:
        """Read all rows once, in bounded memory; InputError where some cannot be divided by their norm."""
        bad = []
        for first in range(0, len(self), _BLOCK_ROWS):
            block = self.chosen[first : first + _BLOCK_ROWS]
            norms = row_norms(self.file.take(block)).cpu()
            bad += block[~(torch.isfinite(norms) & (norms > 0)).numpy()].tolist()
        if bad:
            more = f", ... ({len(bad)} in all)" if len(bad) > _NAMED else ""
            raise InputError(
                f"{self.file}: rows {', '.join(map(str, bad[:_NAMED]))}{more}, counted from 0, hold NaN, infinite "
                "values or zeros alone. Make these vectors again, or leave their pairs out"
            )
