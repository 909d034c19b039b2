"""Retrieval and hubness on the validation split after each epoch."""

import time

import pytorch_lightning as pl

from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.encode import encode_split
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.training.loggers import log_histograms


class RetrievalCallback(pl.Callback):
    """Encodes the validation split and logs val/rsum and all other figures.

    every_n_epochs: epochs between two measurements; the last epoch is always measured. Raises nothing of its own.
    """

    def __init__(self, every_n_epochs: int = 1):
        self.every_n_epochs = every_n_epochs

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Measure by plain nearest neighbours, the whole split at once."""
        done = trainer.current_epoch + 1
        if done % self.every_n_epochs and done != trainer.max_epochs:
            return
        start = time.perf_counter()
        data = trainer.datamodule
        split = encode_split(
            module.image_encoder, module.text_encoder, *data.load("val"), data.eval_batch_size, progress=True
        )
        figures = evaluate(split, module.similarity, NearestNeighbor(), Protocol("single"))
        values = {f"val/{name}": value for name, value in figures.metrics.items()}
        module.log("val/rsum", values.pop("val/rsum"), prog_bar=True)
        module.log_dict(values | {"val/seconds": time.perf_counter() - start})
        log_histograms(trainer.loggers, figures.histograms, trainer.global_step)
