"""The rows of all processes as one batch, with the gradient that one process with all rows would have.

Every process computes the loss of the whole batch. The gradients of the gathered rows are summed over the P processes,
and each process keeps those of its own rows. The sum is P times the gradient of the loss. Distributed data parallel
training averages the gradients of the parameters over the processes, which divides by P again.
"""

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

from vsehub.sets import Encoding, Sets


def processes() -> int:
    """The number of processes that train together; 1 if torch.distributed is not in use."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def process_number() -> int:
    """The number of this process among those that train together, from 0."""
    return dist.get_rank() if processes() > 1 else 0


def launcher_options() -> dict[str, int]:
    """Options of the Trainer, devices and num_nodes, if torchrun or srun has started several processes, else {}."""
    if "TORCHELASTIC_RUN_ID" in os.environ:
        count, devices = int(os.environ["WORLD_SIZE"]), int(os.environ["LOCAL_WORLD_SIZE"])
    elif "SLURM_STEP_ID" in os.environ:  # srun sets it, unlike sbatch, whose script is a single process
        count = int(os.environ.get("SLURM_NTASKS", "1"))
        devices = count // int(os.environ.get("SLURM_NNODES", "1"))
    else:
        return {}
    return {"devices": devices, "num_nodes": count // devices} if count > 1 else {}


def shares(rows: int, parts: int) -> list[int]:
    """The number of rows of each part, as equal as possible; the first parts have one more if needed.

    >>> shares(10, 4)
    [3, 3, 2, 2]
    """
    return [rows // parts + (part < rows % parts) for part in range(parts)]


def gather(rows: Encoding, counts: Sequence[int] | None = None) -> Encoding:
    """The rows of all processes, those of process 0 first: (n, ...) or n `Sets` of each -> (N, ...) or N `Sets`.

    counts: number of rows of each process; None: the same number in all. All processes have to call it, with rows of
    one type and dimension. Without other processes it is the rows themselves.
    """
    if processes() == 1:
        return rows
    counts = counts or [len(rows)] * processes()
    if isinstance(rows, Sets):
        lengths = _gather_rows(rows.lengths, counts)
        return Sets(_gather_rows(rows.vectors, [int(part.sum()) for part in lengths.split(counts)]), lengths)
    return _gather_rows(rows, counts)


def share_of(part: int, rows: int, parts: int) -> slice:
    """The slice of `rows` rows that belongs to part number `part`, from 0, of `parts`.

    >>> share_of(1, 10, 4)
    slice(3, 6, None)
    """
    counts = shares(rows, parts)
    return slice(sum(counts[:part]), sum(counts[: part + 1]))


@torch.no_grad()
def encode_together(
    encode: Callable[..., Encoding],
    encoder: nn.Module,
    source: Any,
    rows: np.ndarray,
    batch_size: int,
) -> Encoding:
    """`encode(encoder, source, rows, batch_size)`, each process encoding its share of the rows (R,).

    All processes get all encodings, in the order of `rows`, without gradient.
    """
    if len(rows) < processes():
        return encode(encoder, source, rows, batch_size)
    share = share_of(process_number(), len(rows), processes())
    return gather(encode(encoder, source, rows[share], batch_size), shares(len(rows), processes()))


def _gather_rows(rows: Tensor, counts: Sequence[int]) -> Tensor:
    """The rows of all processes; they are padded to the largest count, gathered, and cut again."""
    most = max(counts)
    padded = torch.cat([rows, rows.new_zeros(most - len(rows), *rows.shape[1:])]) if len(rows) < most else rows
    all_rows: Tensor = _Gather.apply(padded.contiguous())
    if min(counts) == most:
        return all_rows
    return torch.cat([part[:count] for part, count in zip(all_rows.split(most), counts, strict=True)])


# The functions under their names since torch 2.14, else under the earlier names.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor


class _Gather(torch.autograd.Function):
    """(m, ...) of each of P processes -> (P·m, ...) on all; gradients are summed over the processes."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor) -> Tensor:
        all_rows = rows.new_empty(processes() * len(rows), *rows.shape[1:])
        _all_gather(all_rows, rows)
        return all_rows

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (gradient,) = gradients
        share = gradient.new_empty(len(gradient) // processes(), *gradient.shape[1:])
        _reduce_scatter(share, gradient.contiguous())
        return share
