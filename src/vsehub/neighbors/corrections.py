"""Corrections of scores, applied to one tile after the other in memory that is used again."""

import math
from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor

# (scores (b, m), their queries, their items) -> corrected scores (b, m)
Correction = Callable[[Tensor, slice, slice], Tensor]

# A formula makes temporaries: those of so many scores stay in a core's cache.
STRIP_ELEMENTS = 2**17


class Scratch:
    """Memory for one matrix at a time: to touch fresh memory costs more than the arithmetic done in it."""

    def __init__(self):
        self._held: Tensor | None = None

    def matrix(self, rows: int, columns: int, like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """An uninitialised matrix beside `like`, of its type or dtype, in the memory of the one given before."""
        size, dtype = rows * columns, dtype or like.dtype
        if self._held is None or len(self._held) < size or self._held.dtype != dtype:
            self._held = like.new_empty(size, dtype=dtype)
        return self._held[:size].view(rows, columns)


class Affine:
    """The correction a·s - b(item), with fewer passes over a tile than the formula and the same numbers.

    scale: a. bias: b (M,).
    """

    def __init__(self, scale: float, bias: Tensor):
        self._scale, self.bias = scale, bias
        # A power of two commutes with rounding: s - b/a ranks the same, and only what is found is scaled.
        self.factor = scale if math.frexp(scale)[0] == 0.5 else 1.0

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self._scale * scores - self.bias[columns]

    def unscaled(self, scores: Tensor, columns: slice, out: Tensor) -> Tensor:
        """Corrected scores (b, m) divided by `factor`, in `out`."""
        if self.factor != self._scale:
            scores = torch.mul(scores, self._scale, out=out)
        return torch.sub(scores, self.bias[columns] / self.factor, out=out)


class Corrected:
    """Tiles of scores under several corrections, None for the scores as they are, one after the other."""

    def __init__(self, corrections: Sequence[Correction | None]):
        self._corrections = corrections
        self._scratch = Scratch()

    def of(self, scores: Tensor, rows: slice, columns: slice) -> Iterator[Tensor]:
        """For each correction what it makes of scores (b, m); of an `Affine`, divided by its factor.

        Each is overwritten by the next, and the scores themselves by the last.
        """
        for place, correct in enumerate(self._corrections, 1):
            out = scores if place == len(self._corrections) else None
            yield scores if correct is None else self._one(correct, scores, rows, columns, out)

    def _one(self, correct: Correction, scores: Tensor, rows: slice, columns: slice, out: Tensor | None) -> Tensor:
        if isinstance(correct, Affine):
            dtype = torch.result_type(scores, correct.bias)
            return correct.unscaled(scores, columns, self._memory(out, scores, dtype))
        whole = None
        for strip in _strips(scores):
            values = correct(scores[strip], slice(rows.start + strip.start, rows.start + strip.stop), columns)
            whole = self._memory(out, scores, values.dtype) if whole is None else whole
            whole[strip] = values
        return whole

    def _memory(self, out: Tensor | None, scores: Tensor, dtype: torch.dtype) -> Tensor:
        return out if out is not None and out.dtype == dtype else self._scratch.matrix(*scores.shape, scores, dtype)


def _strips(scores: Tensor) -> Iterator[slice]:
    """Rows of (b, m) that are corrected together; all on a GPU, which wants few, large steps."""
    height = len(scores) if scores.is_cuda else max(1, STRIP_ELEMENTS // scores.shape[1])
    for top in range(0, len(scores), height):
        yield slice(top, min(top + height, len(scores)))
