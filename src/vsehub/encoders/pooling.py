"""Poolings: from the states of a caption's words, or of an image's regions, to one encoding."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from vsehub.checks import one_of
from vsehub.sets import Encoding, Sets

PARAMETERS = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")  # of a layer of a GRU or LSTM, in torch's order


def recurrent_states(network: nn.RNNBase, rows: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The states (N, L, D) of a GRU or LSTM, and the last one of each row (N, D); two directions are averaged.

    rows: (N, L, ...), the first lengths[n] are row n's. lengths: (N,), at least 1. Each direction's last state is at
    its own end. Rows are read backwards by an index: packing them is slower on a CPU and makes a GPU wait. Of two
    directions each one of each layer runs by itself, without dropout between layers.
    """
    if not network.bidirectional:
        states = network(rows)[0]  # it never sees the padding behind a row
        return states, last(states, lengths)
    run: Any = torch.lstm if isinstance(network, nn.LSTM) else torch.gru
    first = rows.new_zeros(1, len(rows), network.hidden_size)
    back = reversal(lengths, rows.shape[1])[:, :, None]
    for layer in range(network.num_layers):
        sides = rows, rows.take_along_dim(back, dim=1)
        ahead, behind = (
            run(
                side,
                (first, first) if run is torch.lstm else first,
                [getattr(network, f"{name}_l{layer}{suffix}") for name in PARAMETERS],
                has_biases=True,
                num_layers=1,
                dropout=0.0,
                train=network.training,
                bidirectional=False,
                batch_first=True,
            )[0]
            for side, suffix in zip(sides, ("", "_reverse"), strict=True)
        )
        rows = torch.cat([ahead, behind.take_along_dim(back, dim=1)], dim=2)
    return rows.unflatten(2, (2, -1)).mean(dim=2), (last(ahead, lengths) + last(behind, lengths)) / 2


def reversal(lengths: Tensor, longest: int) -> Tensor:
    """Position of each state of rows (N,) read backwards: (N, longest), 0 behind a row; its own inverse."""
    return (lengths[:, None] - 1 - torch.arange(longest, device=lengths.device)).clamp(min=0)


def inside(states: Tensor, lengths: Tensor) -> Tensor:
    """(N, L, 1) boolean: the states that are not padding."""
    return (torch.arange(states.shape[1], device=states.device) < lengths[:, None])[:, :, None]


def last(states: Tensor, lengths: Tensor) -> Tensor:
    """The last state: (N, L, D), (N,) -> (N, D)."""
    return states[torch.arange(states.shape[0], device=states.device), lengths - 1]


def mean(states: Tensor, lengths: Tensor) -> Tensor:
    """The mean of the states: (N, L, D), (N,) -> (N, D)."""
    return states.masked_fill(~inside(states, lengths), 0).sum(dim=1) / lengths[:, None]


def largest(states: Tensor, lengths: Tensor) -> Tensor:
    """The largest value of each dimension: (N, L, D), (N,) -> (N, D)."""
    return states.masked_fill(~inside(states, lengths), -math.inf).max(dim=1).values


COMPARED_SIZE = 40  # mean size of a state's set up to which ranking by comparing all pairs is faster than sorting


class RankedSum(torch.autograd.Function):
    """Sums of states (N, L, D) on the CPU, each times the weight of its rank in its row and dimension: (N, D).

    weights: (N, L), by rank; rank 0 is the largest state. lengths: (N,), at least 1; states behind them are not read.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
        # The states, position by position. At each position the rows are sorted by length, longest first, so that the
        # rows that reach a position are the first rows of the position before.
        order = lengths.argsort(descending=True)
        position, row = inside(states, lengths)[order, :, 0].T.nonzero().unbind(1)
        row = order[row]
        cells = row * states.shape[1] + position
        values = states.flatten(0, 1).index_select(0, cells)
        ranks = torch.from_numpy(descending_ranks(values.numpy(), position.bincount().cumsum(0).tolist()))
        weight_cells = (row * states.shape[1])[:, None] + ranks
        factors = weights.take(weight_cells)
        ctx.save_for_backward(values, factors, weight_cells, row, cells)
        ctx.shape = states.shape
        return values.new_zeros(len(lengths), states.shape[2]).index_add_(0, row, values * factors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        values, factors, weight_cells, row, cells = ctx.saved_tensors
        size = ctx.shape[0] * ctx.shape[1]
        spread = gradient[row]
        to_weights = np.bincount(weight_cells.numpy().ravel(), (values * spread).numpy().ravel(), size)
        to_states = gradient.new_zeros(size, ctx.shape[2]).index_copy_(0, cells, spread.mul_(factors))
        return to_states.view(ctx.shape), torch.from_numpy(to_weights).to(gradient).view(ctx.shape[:2]), None


def descending_ranks(values: np.ndarray, ends: list[int]) -> np.ndarray:
    """The rank (V, D) of each value in its row and dimension: 0 for the largest; equal values rank by position.

    values: (V, D), position by position; those of position p end at ends[p]. Their rows are the first rows of p - 1.
    """
    ranks = np.zeros(values.shape, np.int16)
    positions = list(zip(np.split(values, ends[:-1]), np.split(ranks, ends[:-1]), strict=True))
    for position, (later, later_ranks) in enumerate(positions):
        for earlier, earlier_ranks in positions[:position]:
            behind = earlier[: len(later)] >= later
            later_ranks += behind
            earlier_ranks[: len(later)] += ~behind
    return ranks


class GPO(nn.Module):
    """Generalised pooling: each dimension's values from largest to smallest, weighted by place (VSE∞, Chen 2021).

    The weights depend only on the set's size: a bidirectional GRU, its directions averaged, reads the places' sine and
    cosine encodings, and its scores, divided by the temperature 0.1 of the authors' code, go through a softmax over the
    places. position_dim: dimension of the encodings, even. hidden_dim: dimension of the GRU.
    """

    temperature = 0.1

    def __init__(self, position_dim: int = 32, hidden_dim: int = 32):
        super().__init__()
        self.position_dim = position_dim
        self.gru = nn.GRU(position_dim, hidden_dim, batch_first=True, bidirectional=True)
        self.linear = nn.Linear(hidden_dim, 1, bias=False)

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D), in the weights' type."""
        with torch.autocast(states.device.type, enabled=False):
            if states.is_cpu:
                sizes, where = lengths.unique(return_inverse=True)
                longest = int(sizes.max())
            else:  # every possible size, since listing those of the batch would synchronise the GPU
                longest = states.shape[1]
                sizes, where = torch.arange(1, longest + 1, device=states.device), lengths - 1
            weights = self.weights(sizes, longest)[where]
            states = states[:, :longest]
            values = states.to(weights.dtype)
            by_numpy = states.is_cpu and not torch.compiler.is_compiling()
            if by_numpy and int(lengths.square().sum()) <= COMPARED_SIZE * int(lengths.sum()):
                return RankedSum.apply(values, weights, lengths)
            beyond = ~inside(states, lengths).mT
            values = values.mT.masked_fill(beyond, -math.inf)
            if by_numpy:  # numpy sorts several times as fast as torch
                order = np.argsort(values.detach().neg().contiguous().numpy(), axis=2)
                values = values.gather(2, torch.from_numpy(order))
            else:
                values = values.sort(dim=2, descending=True).values
            return (values.masked_fill(beyond, 0) @ weights[:, :, None])[:, :, 0]

    def weights(self, sizes: Tensor, longest: int) -> Tensor:
        """The weights of the places in sets of each size: (U,) -> (U, longest), each row's sum 1.

        The places are encoded as sines and cosines, the first place being 0 as in the authors' code.
        """
        like = self.linear.weight
        steps = torch.arange(0, self.position_dim, 2, device=like.device, dtype=like.dtype)
        angles = torch.arange(longest, device=like.device, dtype=like.dtype)[:, None]
        angles = angles * torch.exp(steps * (-math.log(10000.0) / self.position_dim))
        encoded = torch.stack([angles.sin(), angles.cos()], dim=2).flatten(1)
        states = recurrent_states(self.gru, encoded.expand(sizes.shape[0], -1, -1), sizes)[0]
        scores = self.linear(states) / self.temperature
        return scores.masked_fill(~inside(scores, sizes.to(scores.device)), -math.inf).softmax(dim=1)[:, :, 0]


# Functions of states (N, L, D) and lengths (N,): they pool the first lengths[n] >= 1 states of row n to vectors (N, D),
# or make them N `Sets` ("none"). States behind these have no effect, even if they are infinite or NaN.
POOLINGS: dict[str, Any] = {"last": last, "mean": mean, "max": largest, "gpo": GPO, "none": Sets.from_padded}


def pooling_of(name: str, choices: tuple[str, ...] = tuple(POOLINGS)) -> Callable[[Tensor, Tensor], Encoding]:
    """The pooling of that name; "none" gives `Sets`. Raises InputError where it is not among `choices`."""
    one_of("pooling", name, choices)
    return GPO() if name == "gpo" else POOLINGS[name]


def gives(pooling: str) -> str:
    """The kind of the pooled encodings, as encoders declare it."""
    return "sets" if pooling == "none" else "vectors"
