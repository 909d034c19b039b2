"""Log-sums of scores that are never written: a product and its log-sum-exp in one Triton kernel, on a GPU.

Import it only where it may be used: triton comes with those builds of torch that have CUDA.
"""

import logging
import math
from functools import cache
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

log = logging.getLogger(__name__)

# Scores of a tile are TILE x TILE. Dimensions multiplied at a time: the most whose vectors, for each of STAGES, a GPU's
# shared memory holds; 64, the faster on an H100, takes 128 KB.
TILE, DEPTHS, STAGES, WARPS = 128, (64, 32), 2, 8
# Columns that one program sums: few rows are divided among many programs, each with at least LEAST_SPAN columns. By
# their number alone, so that the sums of a row do not depend on the rows beside it.
LEAST_SPAN, MOST_PARTS = 1024, 64
# What the probe multiplies: rows, columns, dimensions (of the two kinds that are compiled), the scale, and the largest
# error allowed, which that of factors rounded to TF32 passes many times.
PROBES, PROBE_SCALE, PROBE_ERROR = ((37, 1100, 64), (130, 70, 71)), 100.0, 2e-4


@triton.jit(do_not_specialize=["rows", "columns", "span"])
def _log_sums(
    first,
    second,
    bias,
    sums,
    rows,
    columns,
    dimensions,
    span,
    scale,
    TILE: tl.constexpr,
    DEPTH: tl.constexpr,
    BIASED: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """sums (parts, rows) of first (rows, dimensions) x second (columns, dimensions); a program: TILE rows, one part."""
    part = tl.program_id(1)
    row = tl.program_id(0) * TILE + tl.arange(0, TILE)
    depth = tl.arange(0, DEPTH)
    of_row = first + row.to(tl.int64)[:, None] * dimensions
    largest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    for start in range(part * span, tl.minimum(part * span + span, columns), TILE):
        column = start + tl.arange(0, TILE)
        of_column = second + column.to(tl.int64)[None, :] * dimensions
        products = tl.zeros((TILE, TILE), tl.float32)
        for begin in range(0, dimensions, DEPTH):
            at = begin + depth
            left = tl.load(of_row + at[None, :], (row < rows)[:, None] & (at < dimensions)[None, :], 0.0)
            right = tl.load(of_column + at[:, None], (column < columns)[None, :] & (at < dimensions)[:, None], 0.0)
            products = tl.dot(left, right, products, input_precision=PRECISION)
        values = products * scale
        if BIASED:
            values += tl.load(bias + column, column < columns, 0.0)[None, :]
        values = tl.where((column < columns)[None, :], values, float("-inf"))
        top = tl.maximum(largest, tl.max(values, 1))
        shift = tl.where(top == float("-inf"), 0.0, top)  # -inf less -inf would be NaN
        total = total * tl.exp(largest - shift) + tl.sum(tl.exp(values - shift[:, None]), 1)
        largest = top
    tl.store(sums + part.to(tl.int64) * rows + row, largest + tl.log(total), row < rows)


def log_sums(first: Tensor, second: Tensor, scale: float, bias: Tensor | None = None) -> Tensor:
    """log Σ_c e^{scale · first_r·second_c + bias_c} (R,) of float32 vectors (R, D) and (C, D), C at least 1.

    bias: (C,); None: zeros. Products are float32, not rounded to TF32. Memory: R numbers, at most MOST_PARTS times.
    """
    first, second = first.contiguous(), second.contiguous()
    (rows, dimensions), columns = first.shape, len(second)
    span = TILE * math.ceil(max(LEAST_SPAN, columns / MOST_PARTS) / TILE)
    sums = first.new_empty(math.ceil(columns / span), rows)
    with torch.cuda.device_of(first):
        _log_sums[(math.ceil(rows / TILE), len(sums))](
            *(first, second, sums if bias is None else bias.to(first).contiguous(), sums),
            *(rows, columns, dimensions, span, scale),
            TILE=TILE,
            DEPTH=depth_in(shared_memory(first.device)),
            BIASED=bias is not None,
            PRECISION=precision(first.device),
            num_stages=STAGES,
            num_warps=WARPS,
        )
    return sums[0] if len(sums) == 1 else sums.logsumexp(dim=0)


def depth_in(shared: int) -> int:
    """Dimensions multiplied at a time with so many bytes of shared memory, or the least of `DEPTHS`."""
    fitting = (one for one in DEPTHS if STAGES * 2 * TILE * one * 4 <= shared)
    return next(fitting, DEPTHS[-1])


def shared_memory(device: torch.device) -> int:
    """Bytes of a GPU's shared memory that one program can have; 0 of other devices."""
    if device.type != "cuda":
        return 0
    properties: Any = torch.cuda.get_device_properties(device)  # torch's stubs lack the attribute
    return properties.shared_memory_per_block_optin


def precision(device: torch.device) -> str:
    """How float32 is multiplied: as three products of TF32 numbers, each factor the sum of two, or as it is."""
    if device.type != "cuda" or torch.version.hip is not None:
        return "ieee"
    return "tf32x3" if torch.cuda.get_device_capability(device) >= (8, 0) else "ieee"


@cache
def works_on(device: torch.device) -> bool:
    """Whether `log_sums` can be compiled for a device and gives what float64 does there; tried once."""
    try:
        errors = [_error(*shape, device) for shape in PROBES]
    except Exception as error:  # of a compiler, a driver or a version of triton: whatever it is, another way is there
        log.info("scores are written to memory on %s, since the fused log-sums fail: %s", device, error)
        return False
    if not max(errors) <= PROBE_ERROR:
        log.info("scores are written to memory on %s, since the fused log-sums differ by %.1e", device, max(errors))
        return False
    return True


def _error(rows: int, columns: int, dimensions: int, device: torch.device) -> float:
    """By how much log-sums of unit vectors differ at most from those in float64, which the CPU computes."""
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(rows + columns, dimensions, generator=generator)
    first, second = torch.nn.functional.normalize(vectors, dim=1).split([rows, columns])
    bias = torch.randn(columns, generator=generator)
    wanted = (PROBE_SCALE * first.double() @ second.double().T + bias).logsumexp(dim=1)
    found = log_sums(first.to(device), second.to(device), PROBE_SCALE, bias)
    return float((found.cpu().double() - wanted).abs().max())
