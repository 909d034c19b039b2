"""Log-sums over the rows and over the columns of one matrix."""

import torch
from torch import Tensor


def log_sums(
    values: Tensor, excluded: Tensor, scale: float = 1.0, shift: float = 0.0, weights: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """log Σ e^{scale · weights · (values - shift)} of each row (R,) and each column (C,), `excluded` entries left out.

    values: (R, C) floating. excluded: (R, C) boolean. weights: (R, C); None: 1. Stable, as logsumexp is. Where all
    entries of a row or column are excluded its log-sum is hugely negative but finite, and its gradient 0.
    """
    exponents = values - shift
    if weights is not None:
        exponents = exponents * weights
    exponents = (exponents * scale).masked_fill(excluded, torch.finfo(values.dtype).min / 2)
    return exponents.logsumexp(dim=1), exponents.logsumexp(dim=0)
