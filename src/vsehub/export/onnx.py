"""Encoders as ONNX files, which ONNX Runtime and others run without torch."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from vsehub.checks import InputError
from vsehub.export.captured import Axes, capture
from vsehub.export.model import LIMIT, ModelFormat, Run
from vsehub.extras import require_packages

# torch's order of the gates -> ONNX's: update, reset, new; input, output, forget, cell.
_GATES = {"GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}


class Onnx(ModelFormat):
    """ONNX files, written by torch's exporter and tried with ONNX Runtime."""

    name, suffix = "onnx", ".onnx"

    def require(self) -> None:
        """See `ModelFormat`."""
        require_packages("format=onnx", "export", "onnx", "onnxscript", "onnxruntime")

    def cells(self, network: nn.RNNBase, every: bool) -> nn.Module:
        """See `ModelFormat`: ONNX's own operator, which takes lengths."""
        return OnnxCells(network, every)

    def write(
        self, side: str, network: nn.Module, sample: Sequence[Tensor], axes: Axes, outputs: Sequence[str], path: Path
    ) -> None:
        """See `ModelFormat`. Weights of more than `LIMIT` bytes lie in a file beside `path`."""
        size = sum(one.numel() * one.element_size() for one in (*network.parameters(), *network.buffers()))

        def export() -> None:
            program = torch.onnx.export(
                network,
                tuple(sample),
                dynamo=True,
                verbose=False,
                input_names=list(axes),
                output_names=list(outputs),
                dynamic_shapes=tuple(axes.values()),
            )
            assert program is not None  # by dynamo=True
            program.save(str(path), external_data=size > LIMIT)

        capture(side, self.name, export)

    def opened(self, path: Path) -> Run:
        """See `ModelFormat`."""
        import onnxruntime

        try:
            session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
        except Exception as error:  # onnxruntime's own classes are not public
            said = str(error).strip().partition("\n")[0][:300]
            raise InputError(
                f"ONNX Runtime {onnxruntime.__version__} cannot open the exported {path.name} ({said}). Install a "
                "newer onnxruntime"
            ) from error
        names = [one.name for one in session.get_inputs()]

        def run(*inputs: np.ndarray) -> list[np.ndarray]:
            found: list[np.ndarray] = session.run(None, dict(zip(names, inputs, strict=True)))
            return found

        return run


class OnnxCells(nn.Module):
    """A GRU or an LSTM as ONNX's operator of that name; it computes nothing in torch itself.

    See `traced.Cells` for inputs and results. States beyond a row's length are 0.
    """

    def __init__(self, network: nn.RNNBase, every: bool):
        super().__init__()
        self.every = every
        self.operator, self.size, self.layers = network.mode, network.hidden_size, network.num_layers
        directions = ("", "_reverse") if network.bidirectional else ("",)
        self.directions = len(directions)
        for layer in range(self.layers):
            for kind in ("weight_ih", "weight_hh"):
                own = [self._ordered(getattr(network, f"{kind}_l{layer}{one}")) for one in directions]
                self.register_buffer(f"{kind}_{layer}", torch.stack(own))
            biases = [
                torch.cat([self._ordered(getattr(network, f"{kind}_l{layer}{one}")) for kind in ("bias_ih", "bias_hh")])
                for one in directions
            ]
            self.register_buffer(f"bias_{layer}", torch.stack(biases))

    def _ordered(self, rows: Tensor) -> Tensor:
        """The rows of all gates in ONNX's order."""
        gates = rows.detach().chunk(len(_GATES[self.operator]))
        return torch.cat([gates[place] for place in _GATES[self.operator]])

    def forward(self, inputs: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, F), (N,) -> (N, L, H) or (N, H)."""
        states, last = inputs.transpose(0, 1), inputs
        own: dict[str, Any] = {"hidden_size": self.size}
        own["direction"] = "bidirectional" if self.directions > 1 else "forward"
        if self.operator == "GRU":
            own["linear_before_reset"] = 1  # as torch computes the new state
        for layer in range(self.layers):
            weights = [self.get_buffer(f"{name}_{layer}") for name in ("weight_ih", "weight_hh", "bias")]
            length, rows = states.shape[:2]
            shapes = [(length, self.directions, rows, self.size), (self.directions, rows, self.size)]
            found = torch.onnx.ops.symbolic_multi_out(
                self.operator,
                (states, *weights, lengths.to(torch.int32)),
                own,
                dtypes=[states.dtype] * 2,
                shapes=shapes,
            )
            both, last = found[0], found[1]
            states = both.permute(0, 2, 1, 3).flatten(2)
        return both.mean(dim=1).transpose(0, 1) if self.every else last.mean(dim=0)
