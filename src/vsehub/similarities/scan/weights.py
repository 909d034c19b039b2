"""Normalisation of cross-attention's raw scores over the queries, and pooling of its cosines (Lee 2018, SCAN).

Shapes: raw scores are (n, s, q), n source sets of s vectors against q query vectors; member (q, c), or (n, q, c), says
which of c query sets a query belongs to, so that `x @ member` sums over the queries of each set. `work` is memory of
the scores' shape. Each normalisation has `forward`: changes x in place and returns what its `backward` needs, and
`backward`: turns the gradient of the normalised scores into that of x, in place.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE, EPSILON = 0.1, 1e-8


def spread(values: Tensor, member: Tensor, out: Tensor) -> Tensor:
    """A value of each set (n, s, c) -> the same for each of its queries, in `out` (n, s, q)."""
    return torch.matmul(values, member.mT, out=out)


class Softmax:
    """e^x divided by its sum over the queries of a set; scores of unit vectors need no shift."""

    @staticmethod
    def forward(x: Tensor, member: Tensor, work: Tensor) -> tuple[Tensor, ...]:
        """In place, see above."""
        x.mul_(spread((x.exp_() @ member).reciprocal_(), member, work))
        return ()

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor, work: Tensor) -> None:
        """In place, see above."""
        along = torch.mul(gradient, normalised, out=work) @ member
        gradient.sub_(spread(along, member, work)).mul_(normalised)


class L2:
    """x divided by its 2-norm over the queries of a set, + 1e-8; where that norm is 0, its subgradient is 0."""

    @staticmethod
    def forward(x: Tensor, member: Tensor, work: Tensor) -> tuple[Tensor, ...]:
        """In place, see above."""
        norm = (torch.mul(x, x, out=work) @ member).sqrt_()
        inverse = (norm + EPSILON).reciprocal_()
        x.mul_(spread(inverse, member, work))
        return norm, inverse

    @staticmethod
    def backward(
        gradient: Tensor, normalised: Tensor, member: Tensor, work: Tensor, norm: Tensor, inverse: Tensor
    ) -> None:
        """In place, see above."""
        along = torch.mul(gradient, normalised, out=work) @ member
        along = along.div_(norm * inverse).masked_fill_(norm == 0, 0)
        gradient.addcmul_(spread(along, member, work), normalised, value=-1)
        gradient.mul_(spread(inverse, member, work))


class L1:
    """x divided by its 1-norm over the queries of a set, + 1e-8."""

    @staticmethod
    def forward(x: Tensor, member: Tensor, work: Tensor) -> tuple[Tensor, ...]:
        """In place, see above."""
        inverse = (torch.abs(x, out=work) @ member).add_(EPSILON).reciprocal_()
        x.mul_(spread(inverse, member, work))
        return (inverse,)

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor, work: Tensor, inverse: Tensor) -> None:
        """In place, see above."""
        along = torch.mul(gradient, normalised, out=work) @ member
        gradient.addcmul_(spread(along, member, work), normalised.sign(), value=-1)
        gradient.mul_(spread(inverse, member, work))


class Identity:
    """x unchanged."""

    @staticmethod
    def forward(x: Tensor, member: Tensor, work: Tensor) -> tuple[Tensor, ...]:
        """In place, see above."""
        return ()

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor, work: Tensor) -> None:
        """In place, see above."""


class Normalisation(NamedTuple):
    """The normalisation of raw scores before the softmax over the source; clipped: after a LeakyReLU (0.1)."""

    clipped: bool
    by: type[Softmax] | type[L2] | type[L1] | type[Identity]

    def forward(self, raw: Tensor, member: Tensor, out: Tensor, work: Tensor) -> tuple[Tensor, ...]:
        """raw (n, s, q) -> the normalised scores in `out`, and what `backward` wants."""
        out.copy_(raw)
        if self.clipped:
            F.leaky_relu_(out, SLOPE)
        return self.by.forward(out, member, work)

    def backward(
        self, gradient: Tensor, raw: Tensor, normalised: Tensor, member: Tensor, work: Tensor, *saved: Tensor
    ) -> None:
        """Gradient of the normalised scores -> of the raw ones, in place."""
        self.by.backward(gradient, normalised, member, work, *saved)
        if self.clipped:
            gradient.mul_(torch.gt(raw, 0, out=work).clamp_(min=SLOPE))


NORMALISATIONS = {
    "softmax": Normalisation(False, Softmax),
    "l2norm": Normalisation(False, L2),
    "clipped_l2norm": Normalisation(True, L2),
    "l1norm": Normalisation(False, L1),
    "clipped_l1norm": Normalisation(True, L1),
    "clipped": Normalisation(True, Identity),
    "no_norm": Normalisation(False, Identity),
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
