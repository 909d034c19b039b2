"""A memory bank that is not refilled in every epoch, for the ablation: how old may its vectors be?"""

from typing import Any

import pytorch_lightning as pl

from vsehub.checks import whole
from vsehub.training.callbacks import BankCallback


class StaleBank(BankCallback):
    """`BankCallback`, refilled every `every` epochs; a resumed run has a fresh bank until its next refill."""

    def __init__(self, every: int = 1, **settings: Any):
        super().__init__(**settings)
        whole("every", every)
        self.every = every

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Refill the bank where it is due, or empty after a resume."""
        if (trainer.current_epoch - self.first_epoch) % self.every == 0 or not len(self.bank):
            super().on_train_epoch_start(trainer, module)
