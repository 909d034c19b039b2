"""Retrieval and hubness on the validation split after each epoch."""

import time
from typing import Any

import pytorch_lightning as pl

from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.encode import encode_split
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.training.loggers.log import log_histograms


class RetrievalCallback(pl.Callback):
    """Encodes the validation split and logs val/rsum and all other metrics."""

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Measure by plain nearest neighbours, the whole split at once."""
        start = time.perf_counter()
        data = trainer.datamodule
        loaded, table = data.load("val")
        split = encode_split(
            module.image_encoder, module.text_encoder, loaded, table, data.eval_batch_size, progress=True
        )
        found = evaluate(split, module.similarity, NearestNeighbor(), Protocol("single"))
        values = {f"val/{name}": value for name, value in found.metrics.items()}
        module.log("val/rsum", values.pop("val/rsum"), prog_bar=True)
        module.log_dict(values | {"val/seconds": time.perf_counter() - start})
        log_histograms(trainer.loggers, found.histograms, trainer.global_step - 1)  # the step of the epoch's metrics
