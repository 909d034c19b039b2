"""Cosines of query vectors with what they attend in a source set, and their gradients, from raw scores alone.

The cosine of a unit query w with its attended vector Σ a_r v_r is Σ a_r <v_r, w> / sqrt(aᵀ G a), where G = <v_r, v_r'>
is the source's Gram matrix; it does not change when a is scaled, so that the softmax needs no denominator.

Shapes: n source sets of s vectors against q queries: raw (n, s, q), gram (n, s, s), cosines (n, q); `member` as in
`attention_weights`.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from vsehub.similarities.attention_weights import Normalisation

# Exponents up to this one need no shift: normalised scores are at most 1, and e^20 squared and summed fits float32.
UNSHIFTED = 20.0


class Attention(NamedTuple):
    """How raw scores become weights: `normalisation` over the queries, then softmax of `scale` times it."""

    normalisation: Normalisation
    scale: float

    def cosines(self, raw: Tensor, gram: Tensor, member: Tensor) -> Tensor:
        """The cosines (n, q)."""
        normalised, _ = self.normalisation.forward(raw, member)
        weights = self._exponentials(normalised.mul_(self.scale))
        squares = torch.bmm(gram, weights).mul_(weights).sum(dim=1)
        return weights.mul_(raw).sum(dim=1).mul_(_inverse_root(squares))

    def gradients(self, raw: Tensor, gram: Tensor, member: Tensor, upstream: Tensor) -> tuple[Tensor, Tensor]:
        """Gradients of raw and gram (its symmetric form) from that of the cosines (n, q)."""
        normalised, saved = self.normalisation.forward(raw, member)
        weights = self._exponentials(normalised * self.scale)
        attended = torch.bmm(gram, weights)
        inverse = _inverse_root((attended * weights).sum(dim=1))
        product = weights * raw
        along = upstream * inverse
        across = along * product.sum(dim=1).mul_(inverse).mul_(inverse)
        of_gram = torch.bmm(torch.mul(weights, across[:, None], out=product), weights.mT).mul_(-0.5)
        gradient = (raw * along[:, None]).sub_(attended.mul_(across[:, None])).mul_(weights).mul_(self.scale)
        gradient = self.normalisation.backward(gradient, raw, normalised, member, *saved)
        return gradient.add_(weights.mul_(along[:, None])), of_gram

    def _exponentials(self, exponents: Tensor) -> Tensor:
        """e^x in its memory, or a multiple for each query where that could overflow."""
        if self.scale > UNSHIFTED:
            exponents.sub_(exponents.amax(dim=1, keepdim=True))
        return exponents.exp_()


def _inverse_root(squares: Tensor) -> Tensor:
    """1 / sqrt(x), and 0 where x is not above 0: what attends zero vectors alone has cosine 0."""
    return squares.rsqrt().masked_fill_(squares <= 0, 0)


def gram(vectors: Tensor) -> Tensor:
    """Gram matrices of sets (n, s, D) -> (n, s, s), the diagonal raised by s times the rounding error.

    So the norm of vectors that cancel stays above its own rounding error.
    """
    size = vectors.shape[1]
    ridge = torch.eye(size, dtype=vectors.dtype, device=vectors.device) * (size * torch.finfo(vectors.dtype).eps)
    return torch.bmm(vectors, vectors.mT) * (1 + ridge)
