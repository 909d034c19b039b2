"""Corrections of tiles of scores, which a search applies."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

# (scores (b, m), their queries, their items) -> corrected scores (b, m)
TileCorrection = Callable[[Tensor, slice, slice], Tensor]


@dataclass(frozen=True, eq=False)
class Affine:
    """The correction a·s - b(item) of scores s. scale: a. bias: b (M,)."""

    scale: float
    bias: Tensor

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self.scale * scores - self.bias[columns]
