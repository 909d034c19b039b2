"""What a pair's score is made of: the cosines of its queries, pooled (Lee 2018, SCAN, eq. 6-7 and its code)."""

import torch
from torch import Tensor


def mean(cosines: Tensor, inside: Tensor, scale: float) -> Tensor:
    """Mean over the queries."""
    return total(cosines, inside, scale) / inside.sum(dim=-1)


def total(cosines: Tensor, inside: Tensor, scale: float) -> Tensor:
    """Sum over the queries."""
    return cosines.masked_fill(~inside, 0).sum(dim=-1)


def largest(cosines: Tensor, inside: Tensor, scale: float) -> Tensor:
    """Maximum over the queries."""
    return cosines.masked_fill(~inside, -torch.inf).amax(dim=-1)


def lse(cosines: Tensor, inside: Tensor, scale: float) -> Tensor:
    """1/λ log Σ e^{λ c} over the queries, λ = scale."""
    return (scale * cosines).masked_fill(~inside, -torch.inf).logsumexp(dim=-1) / scale


# cosines (..., L) with the mask (..., L) of what is a query, λ_lse -> (...)
POOLINGS = {"mean": mean, "lse": lse, "max": largest, "sum": total}
