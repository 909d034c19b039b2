"""Log-sums over the rows and over the columns of one matrix, in a few passes over it."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

_BLOCK = 2**16  # entries at a time on a CPU: they stay in the cache from the first pass to the last


def log_sums(
    values: Tensor, excluded: Tensor, scale: float = 1.0, shift: float = 0.0, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """log Σ e^{scale · weights · (values - shift)} of each row (R,) and each column (C,), `excluded` entries left out.

    values: (R, C) floating. excluded: (R, C) boolean. weights: (R, C), without gradient; None: 1. Stable, as logsumexp
    is. Where all entries of a row or column are excluded its log-sum is hugely negative but finite, and its gradient 0.
    """
    return _LogSums.apply(values, excluded, scale, shift, weights)


class _LogSums(torch.autograd.Function):
    """The exponents are computed block by block, and again for the gradient, instead of being kept."""

    @staticmethod
    def forward(
        ctx: Any, values: Tensor, excluded: Tensor, scale: float, shift: float, weights: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        ctx.settings = scale, shift
        rows = values.new_empty(len(values))
        largest = values.new_full((values.shape[1],), -torch.inf)
        total = torch.zeros_like(largest)
        for block in _blocks(values):
            x = _exponents(values, excluded, scale, shift, weights, block)
            top = x.amax(dim=1)
            rows[block] = (x - top[:, None]).exp_().sum(dim=1).log_().add_(top)
            top = torch.maximum(largest, x.amax(dim=0))
            total.mul_(largest.sub_(top).exp_()).add_(x.sub_(top).exp_().sum(dim=0))
            largest = top
        columns = total.log_().add_(largest)
        ctx.save_for_backward(values, excluded, weights, rows, columns)
        return rows, columns

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, to_rows: Tensor, to_columns: Tensor) -> tuple[Tensor | None, ...]:
        values, excluded, weights, rows, columns = ctx.saved_tensors
        nothing = _nothing(values) / 2
        to_rows, to_columns = (
            given.masked_fill(sums <= nothing, 0) for given, sums in ((to_rows, rows), (to_columns, columns))
        )
        gradient = torch.empty_like(values)
        scale, shift = ctx.settings
        for block in _blocks(values):
            x = _exponents(values, excluded, scale, shift, weights, block)
            here = torch.sub(x, rows[block, None], out=gradient[block]).exp_().mul_(to_rows[block, None])
            here.addcmul_(x.sub_(columns).exp_(), to_columns)
            if weights is not None:
                here.mul_(weights[block])
            if scale != 1:
                here.mul_(scale)
        return gradient, None, None, None, None


def _nothing(like: Tensor) -> float:
    """The exponent of an excluded entry: finite, so that a row of them has a gradient."""
    return torch.finfo(like.dtype).min / 2


def _blocks(values: Tensor) -> list[slice]:
    """Slices of the rows."""
    height = max(1, _BLOCK // max(1, values.shape[1])) if values.device.type == "cpu" else max(1, len(values))
    return [slice(first, first + height) for first in range(0, len(values), height)]


def _exponents(
    values: Tensor, excluded: Tensor, scale: float, shift: float, weights: Tensor | None, block: slice
) -> Tensor:
    """The exponents of a block's rows, its own copy."""
    x = values[block] - shift
    if weights is not None:
        x.mul_(weights[block])
    return x.mul_(scale).masked_fill_(excluded[block], _nothing(values))
