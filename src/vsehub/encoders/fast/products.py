"""Many small products by one fixed matrix on a CPU.

The operators of oneDNN that Inductor uses lay a matrix out once, which makes products of a few dozen rows 1.3 to 2.5
times as fast, and a step of the prefix GRU an eighth. These operators are private to torch. Nothing else in the package
calls such operators, and where a torch lacks them or has changed them the public product takes their place.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

TYPICAL_ROWS = 64
LARGE = 2**14  # numbers of a matrix; laying out a smaller one does not pay
_SIDE = 128  # of the matrix on which the operators are tried, which is as large as those that are laid out


def fixed_product(right: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A function of rows of `dtype`: their product, of the same type, with the matrix `right`."""
    right = right.to(dtype)
    if right.numel() < LARGE or not lays_out(dtype):
        return partial(torch.matmul, other=right)
    packed = _laid_out(right)
    return lambda left: _product(left, packed)


@cache
def lays_out(dtype: torch.dtype) -> bool:
    """Return True if torch's private operators exist for this type and agree with the public product."""
    if dtype not in (torch.float32, torch.bfloat16) or not torch.backends.mkldnn.is_available():
        return False
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        # Of -1, 0 and 1, whose sums of products are exact in both types.
        left, right = (torch.randint(-1, 2, (n, _SIDE), generator=generator).to(dtype) for n in (200, _SIDE))
        try:
            packed = _laid_out(right)
            found = [_product(left[:rows], packed) for rows in (1, 32, TYPICAL_ROWS, 200)]
            return all(one.dtype == dtype and torch.equal(one, left[: len(one)] @ right) for one in found)
        except Exception:  # a private operator may be absent, have another signature, or refuse in any way
            return False


def _laid_out(right: Tensor) -> Any:
    return torch.ops.mkldnn._reorder_linear_weight(right.T, TYPICAL_ROWS)


def _product(left: Tensor, packed: Any) -> Any:
    return torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
