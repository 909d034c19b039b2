"""Cosines of query vectors with what they attend in a source set, and their gradients, from raw scores alone.

The cosine of a unit query w with its attended vector Σ a_r v_r is Σ a_r <v_r, w> / sqrt(aᵀ G a), where G = <v_r, v_r'>
is the source's Gram matrix; it does not change when a is scaled, so that the softmax needs no denominator.

Shapes: n source sets of s vectors against q queries: raw (n, s, q), gram (n, s, s), cosines (n, q); `member` as in
`attention_weights`.
"""

from math import prod
from typing import NamedTuple

import torch
from torch import Tensor

from vsehub.similarities.attention_weights import Normalisation

# Exponents up to this one need no shift: normalised scores are at most 1, and e^20 squared and summed fits float32.
UNSHIFTED = 20.0


class Scratch:
    """Memory that is used again for tile after tile: on a CPU fresh memory costs more than what is computed in it."""

    def __init__(self, like: Tensor):
        self._like, self._blocks = like, {}

    def __call__(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """Memory of a shape under a name, with whatever it held."""
        size = prod(shape)
        if name not in self._blocks or self._blocks[name].numel() < size:
            self._blocks[name] = self._like.new_empty(size)
        return self._blocks[name][:size].view(shape)


class Attention(NamedTuple):
    """How raw scores become weights: `normalisation` over the queries, then softmax of `scale` times it."""

    normalisation: Normalisation
    scale: float

    def cosines(self, raw: Tensor, gram: Tensor, member: Tensor, scratch: Scratch) -> Tensor:
        """The cosines (n, q)."""
        weights, work = (scratch(name, raw.shape) for name in ("weights", "work"))
        self.normalisation.forward(raw, member, weights, work)
        self._exponentials(weights.mul_(self.scale))
        squares = torch.bmm(gram, weights, out=work).mul_(weights).sum(dim=1)
        return weights.mul_(raw).sum(dim=1).mul_(_inverse_root(squares))

    def gradients(
        self,
        raw: Tensor,
        gram: Tensor,
        member: Tensor,
        upstream: Tensor,
        of_raw: Tensor,
        of_gram: Tensor,
        scratch: Scratch,
    ) -> None:
        """From the gradient (n, q) of the cosines: write raw's to `of_raw`, add gram's, symmetric, to `of_gram`."""
        names = ("normalised", "weights", "attended", "work")
        normalised, weights, attended, work = (scratch(name, raw.shape) for name in names)
        saved = self.normalisation.forward(raw, member, normalised, work)
        self._exponentials(torch.mul(normalised, self.scale, out=weights))
        torch.bmm(gram, weights, out=attended)
        inverse = _inverse_root(torch.mul(attended, weights, out=work).sum(dim=1))
        along = upstream * inverse
        across = torch.mul(raw, weights, out=work).sum(dim=1).mul_(along).mul_(inverse).mul_(inverse)
        along, across = along[:, None], across[:, None]
        of_gram.baddbmm_(torch.mul(weights, across, out=work), weights.mT, alpha=-0.5)
        # of the exponents: weights x (along x raw - across x attended)
        gradient = torch.mul(raw, along * self.scale, out=work)
        gradient.addcmul_(attended, across * self.scale, value=-1).mul_(weights)
        self.normalisation.backward(gradient, raw, normalised, member, attended, *saved)
        torch.addcmul(gradient, weights, along, out=of_raw)

    def _exponentials(self, exponents: Tensor) -> None:
        """e^x in its memory, or a multiple for each query where that could overflow."""
        if self.scale > UNSHIFTED:
            exponents.sub_(exponents.amax(dim=1, keepdim=True))
        exponents.exp_()


def _inverse_root(squares: Tensor) -> Tensor:
    """1 / sqrt(x), and 0 where x is not above 0: what attends zero vectors alone has cosine 0."""
    return squares.rsqrt().masked_fill_(squares <= 0, 0)
