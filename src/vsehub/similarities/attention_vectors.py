"""Unit vectors, and the Gram matrices of sets of them."""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


class Unit(torch.autograd.Function):
    """Rows (V, D) scaled to norm 1; a zero row stays zero, and has no gradient."""

    @staticmethod
    def forward(ctx, vectors: Tensor) -> Tensor:
        norms = torch.linalg.vector_norm(vectors, dim=1, keepdim=True)
        inverse = norms.reciprocal().masked_fill_(norms == 0, 0)
        unit = vectors * inverse
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:
        unit, inverse = ctx.saved_tensors
        product = gradient * unit
        radial = product.sum(dim=1, keepdim=True)
        return torch.addcmul(gradient, unit, radial, value=-1, out=product).mul_(inverse)


def gram(vectors: Tensor) -> Tensor:
    """Gram matrices of sets (n, s, D) -> (n, s, s), the diagonal raised by s times the rounding error.

    So the norm of vectors that cancel stays above its own rounding error.
    """
    matrices = torch.bmm(vectors, vectors.mT)
    matrices.diagonal(dim1=1, dim2=2).mul_(1 + vectors.shape[1] * torch.finfo(vectors.dtype).eps)
    return matrices
