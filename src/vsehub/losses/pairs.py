"""What every in-batch loss does at its door."""

import torch
from torch import Tensor

from vsehub.checks import require


def checked(scores: Tensor, positives: Tensor) -> Tensor:
    """The scores in at least float32, after both arguments were checked.

    scores: (N, N), pair n at [n, n]. positives: (N, N) boolean, true wherever image and text belong together; its
    diagonal must be true. Raises InputError otherwise.
    """
    require(
        scores.ndim == 2 and scores.shape[0] == scores.shape[1] and scores.shape[0] > 0,
        f"scores has shape {tuple(scores.shape)}; expected (N, N) with the N pairs on the diagonal",
    )
    require(
        positives.shape == scores.shape and positives.dtype == torch.bool,
        f"positives is {positives.dtype} {tuple(positives.shape)}; expected a boolean mask {tuple(scores.shape)}",
    )
    return scores.float() if scores.dtype in (torch.float16, torch.bfloat16) else scores


def fill_positives(values: Tensor, positives: Tensor) -> Tensor:
    """`values` with the positives lowered so far that no maximum or log-sum over the negatives can see them.

    A finite floor, so that a row without a negative has gradient zero instead of NaN.
    """
    return values.masked_fill(positives, torch.finfo(values.dtype).min / 2)
