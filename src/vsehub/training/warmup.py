"""A learning rate that rises over the first steps."""

import pytorch_lightning as pl

from vsehub.checks import require


class Warmup(pl.Callback):
    """Scales the schedule's learning rate by (step + 1) / steps during the first steps of a run.

    At the start all similarities are about equal, and Adam's first full-sized steps move them together: HAL's then
    fall below 0 within four steps, where max(0, W_ii S_ii) has no gradient to bring them back. steps: 0 for none.
    """

    def __init__(self, steps: int = 50):
        require(steps >= 0, f"warmup steps is {steps}; expected 0 or more")
        self.steps = steps
        self._rates: list[float] = []

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch, batch_index: int) -> None:
        """Lower the rate for this step alone; the schedule goes on from its own rates."""
        step = trainer.global_step
        self._rates = [group["lr"] for group in trainer.optimizers[0].param_groups] if step < self.steps else []
        self._set(trainer, [rate * (step + 1) / self.steps for rate in self._rates])

    def on_train_batch_end(self, trainer: pl.Trainer, module: pl.LightningModule, outputs, batch, batch_index) -> None:
        """Give the schedule's rates back."""
        self._set(trainer, self._rates)

    @staticmethod
    def _set(trainer: pl.Trainer, rates: list[float]) -> None:
        for group, rate in zip(trainer.optimizers[0].param_groups, rates, strict=False):
            group["lr"] = rate
