"""Code that the losses share: the check of their arguments, masks, log-sums, and means of the k largest entries."""

import torch
import torch.nn.functional as F
from torch import Tensor

from vsehub.checks import require


def checked(scores: Tensor, positives: Tensor) -> Tensor:
    """The scores in at least float32, after both arguments were checked.

    scores: (N, N), pair n at [n, n]. positives: (N, N) boolean, true wherever image and text belong together. The
    diagonal is assumed true; checking it would synchronise the GPU. Raises InputError for other shapes and types.
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


def fill_excluded(values: Tensor, excluded: Tensor) -> Tensor:
    """`values` with the excluded entries set so low that they do not affect a maximum or log-sum over the others.

    A finite floor, so that a row with all entries excluded has gradient zero instead of NaN.
    """
    return values.masked_fill(excluded, torch.finfo(values.dtype).min / 2)


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
    exponents = fill_excluded(exponents * scale, excluded)
    return exponents.logsumexp(dim=1), exponents.logsumexp(dim=0)


def cross_entropies(logits: Tensor, paired: Tensor, positives: Tensor) -> tuple[Tensor, Tensor]:
    """-log softmax of each pair among its row's and its column's negatives: both (N,).

    logits: (N, N), only the negatives count. paired: (N,), the logits of the pairs. positives: (N, N) boolean.
    """
    rows, columns = log_sums(logits, positives)
    # torch's own threshold of 20 leaves an error of e^-20, above float64's.
    return F.softplus(rows - paired, threshold=40), F.softplus(columns - paired, threshold=40)


def without_other_positives(positives: Tensor) -> Tensor:
    """(N, N) boolean: the pairs and their negatives, from the mask (N, N) of all positives."""
    return ~positives | torch.eye(len(positives), dtype=torch.bool, device=positives.device)


def mean_of_largest(values: Tensor, counted: Tensor, k: int) -> Tensor:
    """Each row's mean of its k largest counted entries, of all if there are fewer, 0 without any.

    values: (R, C). counted: (R, C) boolean. Returns (R,).
    """
    largest, valid, _ = _largest(values, counted, k)
    return largest.sum(dim=1) / valid.sum(dim=1).clamp(min=1)


def mean_of_the_other_largest(values: Tensor, counted: Tensor, k: int) -> Tensor:
    """For each entry, `mean_of_largest` of its row with the entry itself left out: (R, C) -> (R, C)."""
    largest, valid, columns = _largest(values, counted, k + 1)
    means = largest[:, :k].sum(dim=1) / valid[:, :k].sum(dim=1).clamp(min=1)
    # Leaving out an entry changes the mean only if it is among the k + 1 largest: the mean is then that of the others.
    sums = largest.sum(dim=1, keepdim=True) - largest
    counts = valid.sum(dim=1, keepdim=True) - valid.to(values.dtype)
    return means[:, None].expand_as(values).scatter(1, columns, sums / counts.clamp(min=1))


def _largest(values: Tensor, counted: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """The k largest counted entries of each row, 0 where there are fewer; which of them are real; their columns."""
    k = min(k, values.shape[1])
    largest, columns = values.masked_fill(~counted, -torch.inf).topk(k, dim=1)
    valid = counted.gather(1, columns)
    return largest.masked_fill(~valid, 0.0), valid, columns
