"""Normalisation of cross-attention's raw scores over the queries, and pooling of its cosines (Lee 2018, SCAN).

Shapes: raw scores are (n, s, q), n source sets of s vectors against q query vectors; member (q, c), or (n, q, c), says
which of c query sets a query belongs to, so that `x @ member` sums over the queries of each set.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE, EPSILON = 0.1, 1e-8
NORMALISATIONS = ("softmax", "l2norm", "clipped_l2norm", "l1norm", "clipped_l1norm", "clipped", "no_norm")
POOLINGS = ("mean", "lse", "max", "sum")


def normalised(raw: Tensor, member: Tensor, how: str) -> Tensor:
    """The raw scores (n, s, q) as the softmax over the source takes them.

    how: "clipped" and names that begin so apply a LeakyReLU (0.1) first; "softmax" divides e^x by its sum over the
    queries of a set, "l2norm" and "l1norm" x by its norm there + 1e-8, where the subgradient of a 2-norm of 0 is 0.
    """
    scores = F.leaky_relu(raw, SLOPE) if how.startswith("clipped") else raw
    if how in ("clipped", "no_norm"):
        return scores
    if how == "softmax":  # scores of unit vectors need no shift
        scores = scores.exp()
        divisor = scores @ member
    elif how.endswith("l2norm"):
        squares = scores.square() @ member
        divisor = squares.clamp(min=torch.finfo(raw.dtype).tiny).sqrt() + EPSILON
    else:
        divisor = scores.abs() @ member + EPSILON
    return scores * (divisor.reciprocal() @ member.mT)


def pooled(cosines: Tensor, inside: Tensor, how: str, scale: float) -> Tensor:
    """The cosines (..., L) of queries, pooled over L to (...).

    inside: (..., L) boolean, the cosines that are not of padding. how: "mean", "sum", "max", or "lse", which is
    1/λ log Σ e^{λ c} with λ = scale.
    """
    if how == "lse":
        return (scale * cosines).masked_fill(~inside, -torch.inf).logsumexp(dim=-1) / scale
    if how == "max":
        return cosines.masked_fill(~inside, -torch.inf).amax(dim=-1)
    total = cosines.masked_fill(~inside, 0).sum(dim=-1)
    return total / inside.sum(dim=-1) if how == "mean" else total
