"""Many small products by one fixed matrix on a CPU.

The operators of oneDNN that Inductor uses lay a matrix out once, which makes a training step of a bidirectional GRU of
1,024 units a third faster in float32. They are private to torch, and nothing else in the package calls such operators;
where a torch lacks them or has changed them the public product takes their place.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

TYPICAL_ROWS = 64
LARGE = 2**14  # numbers of a matrix; laying out a smaller one does not pay


def fixed_product(right: Tensor, dtype: torch.dtype) -> Callable[[Tensor], Tensor]:
    """A function of rows of `dtype`: their product, of the same type, with the matrix `right`."""
    right = right.to(dtype)
    if right.numel() < LARGE or not lays_out(dtype):
        return partial(torch.matmul, other=right)
    return _laid_out(right)


@cache
def lays_out(dtype: torch.dtype) -> bool:
    """Return True if torch's private operators exist for this type and agree with the public product."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad(), torch.autocast("cpu", enabled=False):
        # Of -1, 0 and 1, whose sums of products are exact in every type.
        left, right = (torch.randint(-1, 2, (n, 128), generator=generator).to(dtype) for n in (200, 128))
        try:
            product = _laid_out(right)
            return all(torch.equal(product(left[:rows]), left[:rows] @ right) for rows in (1, 32, 200))
        except Exception:  # a private operator may be absent, have another signature, or refuse in any way
            return False


def _laid_out(right: Tensor) -> Callable[[Tensor], Any]:
    packed = torch.ops.mkldnn._reorder_linear_weight(right.T, TYPICAL_ROWS)
    return lambda left: torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
