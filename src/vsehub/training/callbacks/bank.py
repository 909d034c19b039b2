"""Refills the memory bank at the start of an epoch from a seeded sample of the training pairs."""

import logging
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from torch import nn

from vsehub.checks import require
from vsehub.data.sources import CaptionedImages
from vsehub.metrics.occurrences import k_occurrences, skewness
from vsehub.models.encode import encode_images, encode_texts
from vsehub.neighbors.bank import MemoryBank, bank_input
from vsehub.sets import Encoding
from vsehub.training.batches import positives_of
from vsehub.training.gather import encode_together

log = logging.getLogger(__name__)

# The bank's own hubness is measured on this many of its pairs at most: fewer where a score costs more than a product.
HUBNESS_PAIRS, COSTLY_HUBNESS_PAIRS = 5000, 300


class BankCallback(pl.Callback):
    """Gives the module a `MemoryBank` and refills it each epoch; only the sample is loaded and encoded.

    fraction: share of the training pairs in the bank. first_epoch: the first epoch, counted from 0, that has one (the
    authors' code trains the first epoch without). k, backend, exclude, shortlist: `MemoryBank`'s.
    The samples depend on the data module's seed and the epoch. Raises InputError where the loss cannot use a bank.
    A subclass may set `bank_class`, the class of its bank.
    """

    bank_class: type[MemoryBank] = MemoryBank

    def __init__(
        self,
        fraction: float = 0.05,
        first_epoch: int = 1,
        k: int | None = None,
        backend: str = "auto",
        exclude: str = "image",
        shortlist: int | None = 4,
    ):
        require(0 < fraction <= 1, f"fraction is {fraction}; expected a share above 0 and at most 1")
        self.fraction, self.first_epoch = fraction, first_epoch
        self.bank = self.bank_class(k, backend, exclude, shortlist)

    def setup(self, trainer: Any, module: Any, stage: str) -> None:
        """Give the bank to the module, after checking everything that could make its first refill fail."""
        require(
            module.loss.takes_neighbors,
            f"the loss {type(module.loss).__name__} takes no global statistics, so it has no use for a bank; "
            "train it with bank=none, or use loss=hal (statistics: bank) or loss=neighbor_retr",
        )
        self.seed = trainer.datamodule.seed
        split = trainer.datamodule.load("train")[0]
        self._positives = positives_of(split)  # the same in every epoch
        self.bank.plan(*self._ids(split, self.first_epoch), self._positives)
        wanted = module.loss.neighbors_k or 0
        require(wanted <= self.bank.k, f"loss.neighbors_k is {wanted} but the bank gives {self.bank.k}; raise bank.k")
        module.bank = self.bank

    def sample(self, pairs: int, epoch: int, seed: int) -> np.ndarray:
        """The training pairs of an epoch's bank, in ascending order, by seed and epoch only."""
        size = max(1, round(self.fraction * pairs))
        return np.sort(np.random.default_rng([seed, epoch, 1]).choice(pairs, size, replace=False))

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Load, encode and index this epoch's sample; log how long that took and the bank's own hubness."""
        if trainer.current_epoch < self.first_epoch:
            return
        start = time.perf_counter()
        self.refill(trainer, module)
        seconds = time.perf_counter() - start
        if trainer.current_epoch == self.first_epoch:
            log.info("bank: %d pairs, k = %d, %s", len(self.bank), self.bank.k, self.bank.running_backend)
        module.log_dict({"bank/seconds": seconds, "bank/pairs": float(len(self.bank)), "bank/k": float(self.bank.k)})

    @torch.no_grad()
    def refill(self, trainer: Any, module: Any) -> None:
        """Fill the bank for the current epoch."""
        data = trainer.datamodule
        split, table = data.load("train")
        ids = self._ids(split, trainer.current_epoch)
        images = encode_once(encode_images, module.image_encoder, split.images, ids[0], data.eval_batch_size)
        texts = encode_once(encode_texts, module.text_encoder, table, ids[1], data.eval_batch_size)
        similarity = module.similarity
        inner = similarity.inner_product
        images, texts = bank_input(similarity, images), bank_input(similarity, texts)
        self.bank.fill(images, texts, *ids, None if inner else similarity, self._positives)
        pairs = slice(HUBNESS_PAIRS if inner else COSTLY_HUBNESS_PAIRS)
        scores: Any = images[pairs] @ texts[pairs].T if inner else similarity(images[pairs], texts[pairs])  # type: ignore
        for direction, queries in (("i2t", scores), ("t2i", scores.T)):
            module.log(f"bank/hubness/{direction}/skew_10", skewness(k_occurrences(queries, (10,))[10]))

    def _ids(self, split: CaptionedImages, epoch: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Images and captions (M,) of an epoch's bank."""
        rows = self.sample(len(split.pairs), epoch, self.seed)
        images, captions = torch.from_numpy(split.pairs[rows]).unbind(dim=1)
        return images, captions


def encode_once(encode: Callable, encoder: nn.Module, source: Any, ids: torch.Tensor, batch_size: int) -> Encoding:
    """The encodings of the rows `ids` (M,) of a source; each distinct row is encoded once, by one of the processes."""
    rows, where = ids.unique(return_inverse=True)
    encoded = encode_together(encode, encoder, source, rows.numpy(), batch_size)
    return encoded[where.to(encoded.device)]
