"""Randomness by epoch: what an epoch draws depends on the run's seed and the epoch, not on what ran before."""

import pytorch_lightning as pl


class EpochSeed(pl.Callback):
    """Seeds torch, numpy and random at the start of each epoch: a resumed run draws what an unbroken one would."""

    def __init__(self, seed: int):
        self.seed = seed

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Derive the epoch's seed."""
        pl.seed_everything((self.seed * 1_000_003 + trainer.current_epoch) % 2**32, verbose=False)
