"""The ways in which cross-attention normalises raw scores over the queries (Lee 2018, SCAN, eq. 1 and its code).

Shapes: raw scores are (n, s, q), n source sets of s vectors against q query vectors; member (q, c), or (n, q, c), says
which of c query sets a query belongs to, so that `x @ member` sums over the queries of each set.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SLOPE, EPSILON = 0.1, 1e-8


class Softmax:
    """e^x over its sum over the queries of a set; scores of unit vectors need no shift."""

    @staticmethod
    def forward(raw: Tensor, member: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The normalised scores, in the memory of `raw`, and what `backward` wants."""
        raw.exp_()
        return raw.mul_((raw @ member).reciprocal_() @ member.mT), ()

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor) -> Tensor:
        """Gradient of the normalised scores -> of the raw ones, in its memory."""
        return gradient.sub_(((gradient * normalised) @ member) @ member.mT).mul_(normalised)


class L2:
    """x over its 2-norm over the queries of a set, + 1e-8; where that norm is 0, its subgradient is 0."""

    @staticmethod
    def forward(raw: Tensor, member: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As `Softmax.forward`."""
        norm = ((raw * raw) @ member).sqrt_()
        inverse = (norm + EPSILON).reciprocal_()
        return raw.mul_(inverse @ member.mT), (norm, inverse)

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor, norm: Tensor, inverse: Tensor) -> Tensor:
        """As `Softmax.backward`."""
        along = (gradient * normalised) @ member
        along = torch.where(norm > 0, along / (norm * inverse), 0)
        return gradient.sub_((along @ member.mT).mul_(normalised)).mul_(inverse @ member.mT)


class L1:
    """x over its 1-norm over the queries of a set, + 1e-8."""

    @staticmethod
    def forward(raw: Tensor, member: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As `Softmax.forward`."""
        inverse = (raw.abs() @ member).add_(EPSILON).reciprocal_()
        return raw.mul_(inverse @ member.mT), (inverse,)

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor, inverse: Tensor) -> Tensor:
        """As `Softmax.backward`."""
        along = (gradient * normalised) @ member
        return gradient.sub_((along @ member.mT).mul_(normalised.sign())).mul_(inverse @ member.mT)


class Identity:
    """x as it is."""

    @staticmethod
    def forward(raw: Tensor, member: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """As `Softmax.forward`."""
        return raw, ()

    @staticmethod
    def backward(gradient: Tensor, normalised: Tensor, member: Tensor) -> Tensor:
        """As `Softmax.backward`."""
        return gradient


class Normalisation(NamedTuple):
    """What is done to raw scores before the softmax over the source: clipped (LeakyReLU 0.1 first), and by what."""

    clipped: bool
    by: type

    def forward(self, raw: Tensor, member: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """raw (n, s, q) -> the normalised scores in memory of their own, and what `backward` wants."""
        return self.by.forward(F.leaky_relu(raw, SLOPE) if self.clipped else raw.clone(), member)

    def backward(self, gradient: Tensor, raw: Tensor, normalised: Tensor, member: Tensor, *saved: Tensor) -> Tensor:
        """Gradient of the normalised scores -> of the raw ones."""
        gradient = self.by.backward(gradient, normalised, member, *saved)
        return torch.ops.aten.leaky_relu_backward(gradient, raw, SLOPE, False) if self.clipped else gradient


NORMALISATIONS = {
    "softmax": Normalisation(False, Softmax),
    "l2norm": Normalisation(False, L2),
    "clipped_l2norm": Normalisation(True, L2),
    "l1norm": Normalisation(False, L1),
    "clipped_l1norm": Normalisation(True, L1),
    "clipped": Normalisation(True, Identity),
    "no_norm": Normalisation(False, Identity),
}
