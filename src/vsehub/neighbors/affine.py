"""Corrections that add a bias to each item: values a·s - b(item) of scores s."""

import math
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from vsehub.neighbors.defined import SINGLE


class Affine:
    """The correction a·s - b(item), with fewer passes over a tile than the formula and equal results.

    scale: a. bias: b (M,).
    """

    def __init__(self, scale: float, bias: Tensor):
        self._scale, self.bias = scale, bias
        # A power of two commutes with rounding: s - b/a ranks the same, and only the best values need to be scaled.
        self.factor = scale if math.frexp(scale)[0] == 0.5 else 1.0

    def __call__(self, scores: Tensor, rows: slice, columns: slice) -> Tensor:
        """Corrected scores (b, m)."""
        return self._scale * scores - self.bias[columns]

    def unscaled(self, scores: Tensor, columns: slice | Tensor, out: Tensor | None = None) -> Tensor:
        """Corrected scores (b, m) divided by `factor`, in `out` if given. columns: of items, or positions (b, m)."""
        if self.factor != self._scale:
            scores = torch.mul(scores, self._scale, out=out)
        return torch.sub(scores, self.unscaled_bias[columns], out=out)

    def unscaled_array(
        self, scores: np.ndarray, columns: slice | np.ndarray, out: np.ndarray | None = None
    ) -> np.ndarray:
        """`unscaled` of few scores: (b, M) and a slice of items, or (n,) and positions (n,).

        In numpy, which computes in one thread: torch wakes others, which takes longer than these numbers do.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            if self.factor != self._scale:
                scores = np.multiply(scores, self._scale, out=out)
            return np.subtract(scores, self.unscaled_bias.numpy()[columns], out=out)

    @cached_property
    def unscaled_bias(self) -> Tensor:
        """What `unscaled` subtracts from each item's scores (M,)."""
        if self.factor == 1.0:
            return self.bias
        if self.bias.device.type != "cpu":
            return self.bias / self.factor
        return torch.from_numpy(self.bias.numpy() / self.factor)  # in one thread, for each search

    @property
    def slope(self) -> float:
        """What `unscaled` multiplies scores by."""
        return self._scale / self.factor

    @cached_property
    def _largest_bias(self) -> float:
        bias = self.unscaled_bias.numpy()
        return max(float(bias.max()), -float(bias.min()))

    def error(self, error: np.ndarray, norms: np.ndarray, largest: float) -> np.ndarray:
        """By how much `unscaled` may differ if scores do by `error`, of queries with these norms: (b,) all.

        largest: the largest norm of an item. Both values are rounded twice besides.
        """
        return self.slope * error + 4.04 * SINGLE * (self.slope * largest * norms + self._largest_bias)
