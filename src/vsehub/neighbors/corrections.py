"""Corrections of scores, applied to one tile after the other in memory that is used again."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

# (scores (b, m), their queries, their items) -> corrected scores (b, m)
Correction = Callable[[Tensor, slice, slice], Tensor]

# A formula makes temporaries: those of so many scores stay in a core's cache.
STRIP_ELEMENTS = 2**17


class Scratch:
    """Memory for one matrix at a time of each type: to touch fresh memory costs more than the arithmetic done in it."""

    def __init__(self):
        self._held: dict[torch.dtype, Tensor] = {}

    def matrix(self, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """An uninitialised matrix, in the memory of the one given before."""
        size = rows * columns
        if dtype not in self._held or len(self._held[dtype]) < size:
            self._held[dtype] = torch.empty(size, dtype=dtype, device=device)
        return self._held[dtype][:size].view(rows, columns)


class Affine:
    """The correction a·s - b(item), with fewer passes over a tile than the formula and the same numbers.

    scale: a. bias: b (M,).
    """

    def __init__(self, scale: float, bias: Tensor):
        self._scale, self._bias = scale, bias
        # A power of two commutes with rounding: s - b/a ranks the same, and only what is found is scaled.
        self.factor = scale if math.frexp(scale)[0] == 0.5 else 1.0

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self._scale * scores - self._bias[columns]

    def unscaled(self, scores: Tensor, columns: slice, scratch: Scratch) -> Tensor:
        """Corrected scores (b, m) divided by `factor`."""
        bias = self._bias[columns] / self.factor
        out = scratch.matrix(*scores.shape, torch.result_type(scores, bias), scores.device)
        if self.factor != self._scale:
            scores = torch.mul(scores, self._scale, out=out)
        return torch.sub(scores, bias, out=out)


def corrected(correct: Correction, scores: Tensor, rows: slice, columns: slice, scratch: Scratch) -> Tensor:
    """What a correction makes of a tile of scores (b, m); of an `Affine`, divided by its factor."""
    if isinstance(correct, Affine):
        return correct.unscaled(scores, columns, scratch)
    if scores.device.type != "cpu":
        return correct(scores, rows, columns)
    height, whole = max(1, STRIP_ELEMENTS // scores.shape[1]), None
    for top in range(0, len(scores), height):
        strip = slice(top, min(top + height, len(scores)))
        values = correct(scores[strip], slice(rows.start + strip.start, rows.start + strip.stop), columns)
        if whole is None:
            whole = scratch.matrix(*scores.shape, values.dtype, values.device)
        whole[strip] = values
    return whole
