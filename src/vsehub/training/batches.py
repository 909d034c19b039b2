"""Whole batches of image-text pairs, drawn anew each epoch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch.utils.data import Dataset, Sampler

from vsehub.data.captioned import CaptionedImages
from vsehub.evaluation.encode import TextTable
from vsehub.neighbors.relation import Relation
from vsehub.types import Batch


class Draw(NamedTuple):
    """The pairs of one batch: rows (N,) of the training pairs, and the epoch, which augmentation depends on."""

    epoch: int
    rows: np.ndarray


class PairDataset(Dataset):
    """Image-text pairs of a split; asked with a `Draw` it gives a whole Batch.

    seed: of the augmentation, where the images are pictures that have one.
    """

    def __init__(self, split: CaptionedImages, table: TextTable, seed: int = 0):
        self.split, self.table, self.seed = split, table, seed
        self.pairs = split.training_pairs()
        self.relation = relation_of(split)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, draw: Draw) -> Batch:
        rows, captions = self.pairs[draw.rows].T
        texts, lengths = self.table.batch(captions)
        image_ids, caption_ids = torch.from_numpy(rows.copy()), torch.from_numpy(captions.copy())
        related = None if self.relation is None else self.relation.related(image_ids[:, None], caption_ids[None, :])
        return Batch(
            images=torch.from_numpy(np.ascontiguousarray(self._images(rows, captions, draw.epoch))),
            texts=texts,
            lengths=lengths,
            image_ids=image_ids,
            caption_ids=caption_ids,
            positives=related,
        )

    def _images(self, rows: np.ndarray, captions: np.ndarray, epoch: int) -> np.ndarray:
        images = self.split.images
        if getattr(images, "augments", False):
            return images.augmented(rows, captions, (self.seed, epoch))
        return images[rows]


def relation_of(split: CaptionedImages) -> Relation | None:
    """Which images and texts belong together, where texts may belong to several; None where image ids say it."""
    if split.pairs is None:
        return None
    return Relation(torch.from_numpy(split.pairs), len(split.images), len(split.captions))


class EpochSampler(Sampler):
    """Draws of pairs, shuffled anew each epoch by seed and epoch alone, so that a resumed run draws alike.

    A remainder of one pair, which has no negatives, is left out.
    """

    def __init__(self, size: int, batch_size: int, seed: int):
        self.size, self.batch_size, self.seed, self.epoch = size, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch_size + (self.size % self.batch_size > 1)

    def __iter__(self) -> Iterator[Draw]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        for batch in range(len(self)):
            yield Draw(self.epoch, order[batch * self.batch_size : (batch + 1) * self.batch_size])
