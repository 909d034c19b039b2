"""A learning rate that rises over the first steps."""

import pytorch_lightning as pl
from torch.optim import Optimizer


class Warmup(pl.Callback):
    """Scales the schedule's learning rate by (step + 1) / steps during the first steps of a run.

    At the start all similarities are about equal, and Adam's first full-sized steps move all at once: under HAL
    they then fall below 0 within four steps, where max(0, W_ii S_ii) has no gradient to bring them back. steps: number
    of these steps, 0 for none; at most a tenth of the training's steps. The number travels in the checkpoint, so that a
    run that gets more epochs has no second warm-up.
    """

    def __init__(self, steps: int = 50):
        self.steps = steps
        self._resumed = False
        self._rates: list[float] = []

    def state_dict(self) -> dict:
        """The number of steps of this training."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict) -> None:
        """Take up the number of steps of the run that is resumed."""
        self.steps, self._resumed = state["steps"], True

    def on_train_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Register hooks that lower the rate during the optimizer's step only.

        The schedule must not see the lower rate, and Lightning steps it before `on_train_batch_end`.
        """
        if not self._resumed:
            self.steps = int(min(self.steps, trainer.estimated_stepping_batches / 10))

        def lower(optimizer: Optimizer, *_) -> None:
            step = trainer.global_step
            self._rates = [group["lr"] for group in optimizer.param_groups]
            if step < self.steps:
                _set(optimizer, [rate * (step + 1) / self.steps for rate in self._rates])

        trainer.optimizers[0].register_step_pre_hook(lower)
        trainer.optimizers[0].register_step_post_hook(lambda optimizer, *_: _set(optimizer, self._rates))


def _set(optimizer: Optimizer, rates: list[float]) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
