"""Many small products by one fixed matrix on a CPU.

The operators of oneDNN that Inductor uses lay a matrix out once, which makes products of a few dozen rows 1.3 to 2.5
times as fast. These operators are private to torch. Nothing else in the package calls such operators, and where a torch
lacks them or has changed them the public product takes their place.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

TYPICAL_ROWS = 64
LARGE = 2**14  # numbers of a matrix; laying out a smaller one does not pay
_TRIED_SIDE = 128  # of the matrix on which the operators are tried, which is as large as those that are laid out
_TRIED_ROWS = (1, 32, TYPICAL_ROWS, 200)


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
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        # Of -1, 0 and 1, whose sums of products are exact in both types.
        left, right = (
            torch.randint(-1, 2, (rows, _TRIED_SIDE), generator=generator).to(dtype)
            for rows in (max(_TRIED_ROWS), _TRIED_SIDE)
        )
        expected = left @ right
        try:
            packed = _laid_out(right)
            return all(_is_same(_product(left[:rows], packed), expected[:rows]) for rows in _TRIED_ROWS)
        except Exception:  # a private operator may be absent, have another signature, or refuse in any way
            return False


def _is_same(found: Any, expected: Tensor) -> bool:
    same_kind = isinstance(found, Tensor) and found.dtype == expected.dtype and found.shape == expected.shape
    return same_kind and torch.equal(found, expected)


def _laid_out(right: Tensor) -> Tensor:
    packed: Tensor = torch.ops.mkldnn._reorder_linear_weight(right.T, TYPICAL_ROWS)
    return packed


def _product(left: Tensor, packed: Tensor) -> Tensor:
    product: Tensor = torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
    return product
