"""Refills the memory bank at the start of an epoch from a seeded sample of the training pairs."""

import logging
import time

import numpy as np
import pytorch_lightning as pl
import torch

from vsehub.checks import require
from vsehub.evaluation.encode import encode_images, encode_texts
from vsehub.metrics.hubness import k_occurrences, skewness
from vsehub.neighbors.bank import MemoryBank

log = logging.getLogger(__name__)

HUBNESS_PAIRS = 5000  # the bank's own hubness is measured on this many of its pairs at most


class BankCallback(pl.Callback):
    """Gives the module a `MemoryBank` and refills it each epoch; the sample alone is loaded and encoded.

    fraction: share of the training pairs in the bank. first_epoch: the first epoch, counted from 0, that has one (the
    authors' code trains the first epoch without). k, backend, exclude: `MemoryBank`'s. seed: of the samples, which
    also depend on the epoch. Raises InputError where the loss or the similarity cannot use a bank.
    """

    def __init__(
        self,
        fraction: float = 0.05,
        first_epoch: int = 1,
        k: int | None = None,
        backend: str = "auto",
        exclude: str = "image",
        seed: int = 0,
    ):
        require(0 < fraction <= 1, f"bank fraction is {fraction}; expected a share above 0 and at most 1")
        self.fraction, self.first_epoch, self.seed = fraction, first_epoch, seed
        self.bank = MemoryBank(k, backend, exclude)

    def setup(self, trainer: pl.Trainer, module: pl.LightningModule, stage: str) -> None:
        """Hand the bank to the module, after all that its first refill could fail for."""
        require(
            module.wants_neighbors,
            f"the loss {type(module.loss).__name__} takes no global statistics, so it has no use for a bank; "
            "train it with bank=none, or use loss=hal",
        )
        require(
            hasattr(module.similarity, "vectors"),
            f"the similarity {type(module.similarity).__name__} is no inner product of vectors, which the bank "
            "searches by; train it with bank=none",
        )
        split, table = trainer.datamodule.load("train")
        self.bank.plan(torch.from_numpy(split.image_index[self.sample(len(table), self.first_epoch)]))
        wanted = module.loss.neighbors_k
        require(
            wanted is None or wanted <= self.bank.k,
            f"loss.neighbors_k is {wanted} but the bank gives {self.bank.k} neighbours; raise bank.k",
        )
        module.bank = self.bank

    def sample(self, pairs: int, epoch: int) -> np.ndarray:
        """The caption numbers of an epoch's bank, rising, by seed and epoch alone."""
        size = max(1, round(self.fraction * pairs))
        return np.sort(np.random.default_rng([self.seed, epoch, 1]).choice(pairs, size, replace=False))

    def on_train_epoch_start(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Load, encode and index this epoch's sample; log how long that took and the bank's own hubness."""
        if trainer.current_epoch < self.first_epoch:
            return
        start = time.perf_counter()
        self.refill(trainer, module)
        if module.device.type == "cuda":
            torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        if trainer.current_epoch == self.first_epoch:
            log.info("bank: %d pairs, k = %d, %s", len(self.bank), self.bank.k, self.bank.running_backend)
        module.log_dict({"bank/seconds": seconds, "bank/pairs": float(len(self.bank)), "bank/k": float(self.bank.k)})

    @torch.no_grad()
    def refill(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        """Fill the bank for the current epoch."""
        data = trainer.datamodule
        split, table = data.load("train")
        captions = self.sample(len(table), trainer.current_epoch)
        rows, where = np.unique(split.image_index[captions], return_inverse=True)
        images = encode_images(module.image_encoder, split.images, rows, data.eval_batch_size)
        texts = encode_texts(module.text_encoder, table, captions, data.eval_batch_size)
        images, texts = module.similarity.vectors(images), module.similarity.vectors(texts)
        images = images[torch.from_numpy(where).to(images.device)]
        self.bank.fill(images, texts, torch.from_numpy(split.image_index[captions]), torch.from_numpy(captions))
        few = slice(HUBNESS_PAIRS)
        scores = images[few] @ texts[few].T
        for direction, queries in (("i2t", scores), ("t2i", scores.T)):
            module.log(f"bank/hubness/{direction}/skew_10", skewness(k_occurrences(queries, (10,))[10]))
