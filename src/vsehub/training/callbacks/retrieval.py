"""Retrieval and hubness on the validation split after each epoch, and before the first."""

import time
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from vsehub.checks import require
from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.models.encode import EncodedSplit, encode_images, encode_texts
from vsehub.training.gather import encode_together, process_number


class RetrievalCallback(pl.Callback):
    """Encodes the validation split and logs val/rsum and all other metrics.

    start: whether to measure the model before training too, which may then be the best.
    """

    def __init__(self, start: bool = False):
        self.start = start

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Measure the model before its first epoch."""
        if self.start and trainer.current_epoch == 0:
            values = self.measure(trainer, module)
            trainer.callback_metrics.update({name: torch.tensor(value) for name, value in values.items()})

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Measure by plain nearest neighbours, the whole split at once; the processes share its encoding."""
        loss_name = type(module.loss).__name__
        require(
            not module.nan_loss,
            f"the loss {loss_name} returned NaN or infinity for finite scores; look for log(0), 0/0",
        )
        require(
            all(bool(parameter.isfinite().all()) for parameter in module.parameters() if parameter.requires_grad),
            f"the weights became NaN or infinite, though the loss {loss_name} was finite for finite scores: its "
            "gradient was not; look for sqrt(0), 0/0 or norms of zeros, or lower optimizer.lr",
        )
        module.log_dict(self.measure(trainer, module))

    def measure(self, trainer: Any, module: Any) -> dict[str, float]:
        """The metrics of the validation split by name."""
        start = time.perf_counter()
        data = trainer.datamodule
        loaded, table = data.load("val")
        image_rows = np.arange(len(loaded.images))
        split = EncodedSplit.from_encodings(
            loaded,
            encode_together(encode_images, module.image_encoder, loaded.images, image_rows, data.eval_batch_size),
            encode_together(encode_texts, module.text_encoder, table, np.arange(len(table)), data.eval_batch_size),
        )
        values: dict[str, float] = {}
        if process_number() == 0:
            evaluation = evaluate(split, module.similarity, NearestNeighbor(), Protocol("single"))
            values = {f"val/{name}": value for name, value in evaluation.metrics.items()}
        return dict(trainer.strategy.broadcast(values)) | {"val/seconds": time.perf_counter() - start}
