"""Vectors wherever they lie, read as blocks of float32 rows."""

from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, require


class Rows(Protocol):
    """(N, D) vectors that are handed out as blocks: a file, or what `as_rows` makes of an array.

    shape: (N, D). rows(start, stop): a tensor (stop - start, D), float32 or float64.
    """

    shape: tuple[int, int]

    def __len__(self) -> int: ...

    def rows(self, start: int, stop: int) -> Tensor: ...


class _Held:
    """A tensor's or an array's rows, on `device`; half precision and memory maps are widened block by block."""

    def __init__(self, vectors: Tensor | np.ndarray, device: torch.device | None):
        self._vectors, self._device = vectors, device
        self.shape = tuple(vectors.shape)

    def __len__(self) -> int:
        return self.shape[0]

    def rows(self, start: int, stop: int) -> Tensor:
        block = self._vectors[start:stop]
        if isinstance(block, np.ndarray):
            block = torch.from_numpy(np.ascontiguousarray(block) if block.flags.writeable else block.copy())
        block = block.detach()
        return block.to(self._device, torch.float64 if block.dtype == torch.float64 else torch.float32)


def as_rows(name: str, vectors: Any, columns: int | None = None, device: torch.device | None = None) -> Rows:
    """`vectors` as `Rows`: a tensor, a numpy array (memory-mapped or not) or something that has `rows` already.

    columns: the dimension it must have. device: where a tensor's blocks go, None for where they are. Raises InputError
    where it is no matrix of floating-point numbers, has no row or another dimension.
    """
    if not hasattr(vectors, "rows"):
        if not isinstance(vectors, Tensor | np.ndarray):
            fail(f"{name} is {type(vectors).__name__}; expected a tensor or a numpy array (N, D)")
        floating = vectors.is_floating_point() if isinstance(vectors, Tensor) else vectors.dtype.kind == "f"
        require(floating, f"{name} holds {vectors.dtype} numbers; expected floating-point vectors")
        vectors = _Held(vectors, device)
    shape = tuple(vectors.shape)
    wanted = "any" if columns is None else columns
    require(
        len(shape) == 2 and (columns is None or shape[1] == columns),
        f"{name} has shape {shape}; expected a matrix (any, {wanted})",
    )
    require(shape[0] > 0, f"{name} is empty; expected at least one row")
    return vectors
