"""Encoders as programs of `torch.export`, which torch runs without the code of vsehub."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.export import Dim

from vsehub.checks import require
from vsehub.export.captured import Axes, capture
from vsehub.export.model import ModelFormat, Run


class TorchExport(ModelFormat):
    """Programs (.pt2) for `torch.export.load`, captured on a CPU."""

    name, suffix = "torch_export", ".pt2"

    def require(self) -> None:
        """See `ModelFormat`."""
        require(
            hasattr(torch, "while_loop"),
            f"format=torch_export needs torch.while_loop, which torch {torch.__version__} lacks; install a newer torch",
        )

    def cells(self, network: nn.RNNBase, every: bool) -> nn.Module:
        """See `ModelFormat`: a loop over the words, whose number stays open."""
        return LoopedCells(network, every)

    def write(
        self, side: str, network: nn.Module, sample: Sequence[Tensor], axes: Axes, outputs: Sequence[str], path: Path
    ) -> None:
        """See `ModelFormat`; outputs have no names in this format."""
        varying = tuple({axis: Dim.DYNAMIC for axis in one} for one in axes.values())

        def export() -> None:
            torch.export.save(torch.export.export(network, tuple(sample), dynamic_shapes=varying), path)

        capture(side, self.name, export, "Choose a checkpoint whose encoders do not branch by the values that they get")

    def opened(self, path: Path) -> Run:
        """See `ModelFormat`."""
        program = torch.export.load(path).module()

        def run(*inputs: np.ndarray) -> list[np.ndarray]:
            with torch.no_grad():
                found = program(*(torch.from_numpy(one) for one in inputs))
            return [one.numpy() for one in ((found,) if isinstance(found, Tensor) else found)]

        return run


class LoopedCells(nn.Module):
    """A GRU or an LSTM as a loop over the words. See `traced.Cells` for inputs and results.

    The equations and the gates' order are those of torch.nn.GRU and torch.nn.LSTM. A state stays as it is beyond its
    row's length.
    """

    def __init__(self, network: nn.RNNBase, every: bool):
        super().__init__()
        self.network, self.every = network, every
        self.step = _gru if network.mode == "GRU" else _lstm

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, F), (N,) -> (N, L, H) or (N, H)."""
        states, network = inputs, self.network
        places = torch.arange(inputs.shape[1], device=inputs.device)
        back = (lengths[:, None] - 1 - places).clamp(min=0)[:, :, None]
        for layer in range(network.num_layers):
            every = self.every or layer + 1 < network.num_layers
            found = self._run(states, lengths, f"l{layer}", every)
            if network.bidirectional:
                turned = states.gather(1, back.expand(-1, -1, states.shape[2]))
                other = self._run(turned, lengths, f"l{layer}_reverse", every)
                if every:
                    other = other.gather(1, back.expand(-1, -1, other.shape[2]))
                found = torch.cat([found, other], dim=-1)
            states = found
        return states.unflatten(-1, (-1, network.hidden_size)).mean(dim=-2) if network.bidirectional else states

    def _run(self, inputs: Tensor, lengths: Tensor, name: str, every: bool) -> Tensor:
        """One direction of one layer: the states (N, L, H), or the last of each row (N, H)."""
        weight_in, weight, bias_in, bias = (
            getattr(self.network, f"{kind}_{name}") for kind in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        )
        projected = F.linear(inputs, weight_in, bias_in).transpose(0, 1)
        length, size = projected.shape[0], self.network.hidden_size

        def goes_on(place: Tensor, state: Tensor, cell: Tensor, *states: Tensor) -> Tensor:
            return place < length

        def step(place: Tensor, state: Tensor, cell: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
            at = place[None]
            new, kept = self.step(projected.index_select(0, at)[0], F.linear(state, weight, bias), state, cell)
            inside = (place < lengths)[:, None]
            new, kept = torch.where(inside, new, state), torch.where(inside, kept, cell)
            return place + 1, new, kept, *(one.index_copy(0, at, new[None]) for one in states)

        start = projected.new_zeros(projected.shape[1], size)
        first = torch.zeros((), dtype=torch.int64, device=inputs.device)
        kept = [projected.new_zeros(length, projected.shape[1], size)] if every else []
        _, last, _, *states = torch.while_loop(goes_on, step, (first, start, start.clone(), *kept))
        return states[0].transpose(0, 1) if every else last


def _gru(given: Tensor, recurrent: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The next state of a GRU, which has no cell besides."""
    (reset, update, new), (own_reset, own_update, own_new) = (one.chunk(3, dim=1) for one in (given, recurrent))
    reset, update = torch.sigmoid(reset + own_reset), torch.sigmoid(update + own_update)
    new = torch.tanh(new + reset * own_new)
    return new + update * (state - new), cell.clone()


def _lstm(given: Tensor, recurrent: Tensor, state: Tensor, cell: Tensor) -> tuple[Tensor, Tensor]:
    """The next state and the next cell of an LSTM."""
    taken, forgotten, new, shown = (given + recurrent).chunk(4, dim=1)
    cell = torch.sigmoid(forgotten) * cell + torch.sigmoid(taken) * torch.tanh(new)
    return torch.sigmoid(shown) * torch.tanh(cell), cell
