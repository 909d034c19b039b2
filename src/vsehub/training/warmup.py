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

    def on_train_batch_start(self, trainer: pl.Trainer, module: pl.LightningModule, batch, batch_index: int) -> None:
        """Set the rate of the step to come; from step `steps` on the schedule has it alone."""
        step = trainer.global_step
        if step > self.steps:
            return
        scale = min(1.0, (step + 1) / self.steps) if self.steps else 1.0
        for configuration in trainer.lr_scheduler_configs:
            scheduler = configuration.scheduler
            for group, rate in zip(scheduler.optimizer.param_groups, scheduler.get_last_lr(), strict=True):
                group["lr"] = rate * scale
