"""An exponential moving average of the weights, which is what is measured and kept."""

from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor
from torch.optim.swa_utils import get_ema_multi_avg_fn

from vsehub.checks import probability


class WeightAverage(pl.Callback):
    """Keeps the moving average of the weights; between epochs the module holds the average.

    Whatever measures or saves the module between epochs gets the average; training goes on with the weights. After n
    steps the average moves by 1 - min(decay, (1 + n) / (10 + n)) of its distance to the weights (the ramp is that of
    TensorFlow's ExponentialMovingAverage), so that the first epochs are not measured near the initial weights.
    Lightning's EMAWeightAveraging has no such ramp, and swaps in a validation loop only. decay: decay per step. Must
    stand before callbacks that measure. Raises InputError for a decay outside 0 to 1.
    """

    def __init__(self, decay: float = 0.999):
        probability("decay", decay)
        self.decay, self.steps = decay, 0
        self._stored: dict[str, Tensor] = {}  # the average while an epoch trains; the weights between epochs
        self._module_has_average = False

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Start from the initial weights; a run that is resumed has its own."""
        self._stored = {
            name: self._stored.get(name, value).to(value, copy=True) for name, value in trainable_state(module).items()
        }

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Train with the weights."""
        if self._module_has_average:
            self._swap(module)
        pairs = [(self._stored[name], value) for name, value in trainable_state(module).items()]
        self._floats = [pair for pair in pairs if pair[1].is_floating_point()]
        self._counters = [pair for pair in pairs if not pair[1].is_floating_point()]

    @torch.no_grad()
    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, *_: Any) -> None:
        """Move the average, after each step of the optimizer; whole numbers, such as counters, are copied."""
        if trainer.global_step == self.steps:
            return
        self.steps = trainer.global_step
        averages, weights = zip(*self._floats, strict=True)
        get_ema_multi_avg_fn(min(self.decay, (1 + self.steps) / (10 + self.steps)))(averages, weights, None)
        for average, value in self._counters:
            average.copy_(value)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Measure and keep the average."""
        self._swap(module)

    def state_dict(self) -> dict[str, Any]:
        """The weights that training goes on with; the checkpoint, written between epochs, has the average."""
        return {"steps": self.steps, "weights": self._stored}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where the run that is resumed was."""
        self.steps, self._stored, self._module_has_average = state["steps"], state["weights"], True

    @torch.no_grad()
    def _swap(self, module: pl.LightningModule) -> None:
        for name, value in trainable_state(module).items():
            before = value.clone()
            value.copy_(self._stored[name])
            self._stored[name] = before
        self._module_has_average = not self._module_has_average


def trainable_state(module: pl.LightningModule) -> dict[str, Tensor]:
    """The part of the state that training can change: all but frozen parameters."""
    frozen = {name for name, parameter in module.named_parameters() if not parameter.requires_grad}
    return {name: value for name, value in module.state_dict().items() if name not in frozen}
