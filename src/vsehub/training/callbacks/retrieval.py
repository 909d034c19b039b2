"""Retrieval and hubness on the validation split after each epoch."""

import time
from typing import Any

import numpy as np
import pytorch_lightning as pl

from vsehub.checks import require
from vsehub.criteria.nns import NearestNeighbor
from vsehub.evaluation.encode import EncodedSplit, encode_images, encode_texts
from vsehub.evaluation.evaluate import evaluate
from vsehub.evaluation.protocols import Protocol
from vsehub.training.gather import encoded_together, process


class RetrievalCallback(pl.Callback):
    """Encodes the validation split and logs val/rsum and all other metrics."""

    def on_train_epoch_end(self, trainer: Any, module: Any) -> None:
        """Measure by plain nearest neighbours, the whole split at once; the processes share its encoding."""
        loss = type(module.loss).__name__
        require(
            not module.nan_loss, f"the loss {loss} returned NaN or infinity for finite scores; look for log(0), 0/0"
        )
        require(
            all(bool(one.isfinite().all()) for one in module.parameters() if one.requires_grad),
            f"the weights became NaN or infinite, though the loss {loss} was finite for finite scores: its gradient "
            "was not; look for sqrt(0), 0/0 or norms of zeros, or lower optimizer.lr",
        )
        start = time.perf_counter()
        data = trainer.datamodule
        loaded, table = data.load("val")
        images = np.arange(len(loaded.images))
        split = EncodedSplit.of(
            loaded,
            encoded_together(encode_images, module.image_encoder, loaded.images, images, data.eval_batch_size),
            encoded_together(encode_texts, module.text_encoder, table, np.arange(len(table)), data.eval_batch_size),
        )
        values: dict[str, float] = {}
        if process() == 0:
            found = evaluate(split, module.similarity, NearestNeighbor(), Protocol("single"))
            values = {f"val/{name}": value for name, value in found.metrics.items()}
        values = trainer.strategy.broadcast(values)
        module.log_dict(values | {"val/seconds": time.perf_counter() - start})
