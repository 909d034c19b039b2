"""Many small products by one fixed matrix on a CPU.

The operators of oneDNN that Inductor uses lay a matrix out once, which makes products of a few dozen rows 1.3 to 2.5
times as fast. These operators are private to torch. Nothing else in the package calls such operators, and where a torch
lacks them or has changed them the public product takes their place.
"""

from functools import cache

import torch
from torch import Tensor

TYPICAL_ROWS = 64
LARGE = 2**14  # numbers of a matrix; laying out a smaller one does not pay
_TRIED = 32  # rows and columns of the matrix on which the operators are tried


class Product:
    """Multiplies rows of `dtype` by one fixed right-hand matrix, in that type; the result has it too.

    repeated: the matrix serves many small products and is laid out for them if that pays.
    """

    def __init__(self, right: Tensor, dtype: torch.dtype, repeated: bool = False):
        self.dtype, self.right = dtype, right.to(dtype)
        self.packed: Tensor | None = None
        if repeated and right.numel() >= LARGE and lays_out(dtype):
            self.packed = _laid_out(self.right)

    def __call__(self, left: Tensor) -> Tensor:
        return left @ self.right if self.packed is None else _product(left, self.packed)


@cache
def lays_out(dtype: torch.dtype) -> bool:
    """Whether torch has the private operators for numbers of this type, and they give what the public product gives."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        # Whole numbers whose products and sums are exact in both types; no two rows or columns are alike.
        number = torch.arange(_TRIED)
        left, right = (((number[:, None] * step + number**2) % 5 - 2).to(dtype) for step in (3, 7))
        try:
            found = _product(left, _laid_out(right))
        except (AttributeError, RuntimeError, TypeError):  # absent, or with another signature
            return False
        expected = left @ right
        return found.dtype == dtype and found.shape == expected.shape and torch.equal(found, expected)


def _laid_out(right: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(right.T, TYPICAL_ROWS)
    return packed


def _product(left: Tensor, packed: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
    return product
