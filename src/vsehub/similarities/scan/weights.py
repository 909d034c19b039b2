"""Normalisation of cross-attention's raw scores over the queries, and pooling of its cosines (Lee 2018, SCAN).

Shapes: raw scores are (n, s, q), n source sets of s vectors against q query vectors; member (q, c), or (n, q, c), says
which of c query sets a query belongs to, so that `x @ member` sums over the queries of each set.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE, EPSILON = 0.1, 1e-8


class Normalisation(NamedTuple):
    """The normalisation of raw scores before the softmax over the source.

    clipped: after a LeakyReLU (0.1). by: "softmax", e^x divided by its sum over the queries of a set; "l2" or "l1", x
    divided by its norm there + 1e-8, where the subgradient of a 2-norm of 0 is 0; "none".
    """

    clipped: bool
    by: str

    def normalised(self, raw: Tensor, member: Tensor) -> Tensor:
        """The normalised scores of raw scores, both (n, s, q)."""
        found = F.leaky_relu(raw, SLOPE) if self.clipped else raw
        if self.by == "none":
            return found
        if self.by == "softmax":  # scores of unit vectors need no shift
            found = found.exp()
            divisor = found @ member
        elif self.by == "l2":
            squares = found.square() @ member
            divisor = squares.clamp(min=torch.finfo(raw.dtype).tiny).sqrt() + EPSILON
        else:
            divisor = found.abs() @ member + EPSILON
        return found * (divisor.reciprocal() @ member.mT)


NORMALISATIONS = {
    "softmax": Normalisation(False, "softmax"),
    "l2norm": Normalisation(False, "l2"),
    "clipped_l2norm": Normalisation(True, "l2"),
    "l1norm": Normalisation(False, "l1"),
    "clipped_l1norm": Normalisation(True, "l1"),
    "clipped": Normalisation(True, "none"),
    "no_norm": Normalisation(False, "none"),
}


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
