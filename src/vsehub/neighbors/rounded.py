"""Scores of vectors that are rounded to bfloat16, which some hardware multiplies several times as fast.

Only the factors are rounded, to two or three significant digits; sums and scores are float32.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.neighbors.vectors import VectorSource

# A BLAS multiplies fewer columns or rows than these by other routines, which add up the products in another order;
# fewer rounded rows than LOW_ROUNDED are not multiplied by AMX.
NARROW, LOW, LOW_ROUNDED = 16, 8, 32
# (queries (b, D), memory or None) -> scores (b, m)
Products = Callable[[Tensor, Tensor | None], Tensor]


class RoundedVectors:
    """Items whose scores are those of rounded vectors, see `rounded_products`; their rows stay as they are."""

    def __init__(self, vectors: VectorSource):
        self._vectors, self.shape = vectors, vectors.shape

    def __len__(self) -> int:
        return len(self._vectors)

    def rows(self, start: int, stop: int) -> Tensor:
        """Rows `start` to `stop` - 1, unrounded."""
        return self._vectors.rows(start, stop)


def products(items: Tensor) -> Products:
    """(queries (b, D), memory or None) -> their inner products (b, m) with items (m, D).

    The score of an item does not depend on the items beside it, so that copies are tied in every block.
    """
    return _padded(items, LOW, lambda wide: lambda queries, out: torch.mm(queries, wide.T, out=out))


def at_least(count: int, rows: Tensor) -> Tensor:
    """Rows (n, D), with rows of zeros below where n is less than count."""
    missing = count - len(rows)
    return rows if missing <= 0 else torch.cat([rows, rows.new_zeros(missing, rows.shape[1])])


def _padded(items: Tensor, low: int, make: Callable[[Tensor], Products]) -> Products:
    """The products that `make` gives of items, with zeros beside few items and fewer queries than low."""
    count, score = len(items), make(at_least(NARROW, items))

    def scored(queries: Tensor, out: Tensor | None) -> Tensor:
        if count >= NARROW and len(queries) >= low:
            return score(queries, out)
        scores = score(at_least(low, queries), None)[: len(queries), :count]
        return scores if out is None else out.copy_(scores)

    return scored


def rounded_products(items: Tensor) -> Products:
    """`products` of queries and items that are rounded to bfloat16, without gradient.

    Scores are float32, or float64 where the vectors are: in bfloat16 most of a query's best would be equal.
    """
    return _padded(items, LOW_ROUNDED, _of_rounded)


def _of_rounded(items: Tensor) -> Products:
    half = items.bfloat16()
    if items.is_cuda and items.dtype == torch.float32:
        return lambda queries, out: torch.mm(queries.bfloat16(), half.T, out_dtype=torch.float32, out=out)
    factor = half.to(items.dtype)

    def scored(queries: Tensor, out: Tensor | None) -> Tensor:
        with _onednn_in_bf16():
            return torch.mm(queries.bfloat16().to(factor.dtype), factor.T, out=out)

    return scored


@contextmanager
def _onednn_in_bf16() -> Iterator[None]:
    """Makes a CPU multiply larger float32 matrices as bfloat16, which is exact for rounded numbers."""
    onednn: Any = torch.backends.mkldnn
    settings = onednn.matmul
    before = settings.fp32_precision
    settings.fp32_precision = "bf16"
    try:
        yield
    finally:
        settings.fp32_precision = before


def uses_bf16(precision: str, device: str, obstacle: str | None = None) -> bool:
    """Return True for bfloat16: precision "bf16", or "auto" on a type of device that multiplies it natively.

    obstacle: why it is impossible here, if it is: "auto" then gives False, and "bf16" raises InputError.
    """
    require(precision != "bf16" or obstacle is None, f"precision is bf16, but {obstacle}; omit precision")
    return precision == "bf16" or (precision == "auto" and obstacle is None and has_bf16(device))


def has_bf16(device: str) -> bool:
    """Return True if "cuda" or "cpu" multiplies bfloat16 natively; emulated products are slower than those of float32.

    Of CPUs these are the ones with AMX tiles or AVX-512 bfloat16.
    """
    if device == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return cpu_has("amx_bf16", "avx512_bf16")


def cpu_has(*capabilities: str) -> bool:
    """Return True if the processor has one of these, by torch's names; False where torch cannot tell."""
    found = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(found.get(one) for one in capabilities)
