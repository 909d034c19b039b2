"""Batches of training pairs: which pairs go together in an epoch, and what a batch takes from the split.

Everything random depends only on the seed, the epoch and the rows, so that a resumed run draws what an unbroken one
would.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from vsehub.checks import probability, require, whole
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import CaptionedImages
from vsehub.data.text.tokens import TokenTable
from vsehub.evaluation.encode import TextTable
from vsehub.neighbors.bank import Relation
from vsehub.training.gather import share_of
from vsehub.types import Batch


class Draw(NamedTuple):
    """The pairs of one batch: rows (N,) of the training pairs, and the epoch, which augmentation depends on."""

    epoch: int
    rows: np.ndarray


class PairDataset(Dataset):
    """Image-text pairs of a split; asked with a `Draw` it gives a whole Batch.

    seed: of what is random. drop_words, drop_regions: the probability with which a word of a caption, or a region of an
    image, is left out (VSE∞, Chen et al. 2021: 0.2); `<start>` and `<end>`, and at least one region, stay. process,
    processes: this process's number, and how many processes share each batch. A process loads the images and texts of
    its own share, equal to those of a single process. Raises InputError where words or regions are to be dropped and
    the split has none.
    """

    def __init__(
        self,
        split: CaptionedImages,
        table: TextTable,
        seed: int = 0,
        drop_words: float = 0.0,
        drop_regions: float = 0.0,
        process: int = 0,
        processes: int = 1,
    ):
        probability("drop_words", drop_words)
        probability("drop_regions", drop_regions)
        require(
            not drop_words or isinstance(table, TokenTable),
            f"loader.drop_words is {drop_words} but the data's texts are vectors; leave it out",
        )
        require(
            not drop_regions or len(split.images.shape) == 3,
            f"loader.drop_regions is {drop_regions} but the data's images have shape {tuple(split.images.shape[1:])}, "
            "which is not regions times features; leave it out",
        )
        self.split, self.table, self.seed = split, table, seed
        self.drop_words, self.drop_regions = drop_words, drop_regions
        self.process, self.processes = process, processes
        self.pairs = split.training_pairs()
        self.relation = relation_of(split)

    def __len__(self) -> int:
        return len(self.pairs)

    def __getitem__(self, draw: Draw) -> Batch:
        rows, captions = self.pairs[draw.rows].T
        own = share_of(self.process, len(rows), self.processes)
        images = torch.from_numpy(np.ascontiguousarray(self._images(rows[own], captions[own], draw.epoch)))
        random = np.random.default_rng([self.seed, draw.epoch, int(draw.rows[0])])
        if self.drop_words:
            texts, lengths = without_words(*self.table.batch(captions), self.drop_words, random)
            lengths = lengths[own]
            texts = texts[own, : int(lengths.max())]
        else:
            texts, lengths = self.table.batch(captions[own])
        if self.drop_regions:
            drawn = random.random((len(rows), images.shape[1]))[own]
            images = without_regions(images, self.drop_regions, drawn)
        image_ids, caption_ids = torch.from_numpy(rows.copy()), torch.from_numpy(captions.copy())
        related = None if self.relation is None else self.relation.related(image_ids[:, None], caption_ids[None, :])
        return Batch(
            images=images,
            texts=texts,
            lengths=lengths,
            image_ids=image_ids,
            caption_ids=caption_ids,
            positives=related,
        )

    def _images(self, rows: np.ndarray, captions: np.ndarray, epoch: int) -> np.ndarray:
        images = self.split.images
        if isinstance(images, Pictures) and images.augments:
            return images.augmented(rows, captions, (self.seed, epoch))
        return images[rows]


def without_words(texts: Tensor, lengths: Tensor, share: float, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Captions (N, L) of `lengths` (N,), each word but the first and the last dropped with probability `share`."""
    place = torch.arange(texts.shape[1])
    inside = place < lengths[:, None]
    ends = (place == 0) | (place == lengths[:, None] - 1)
    kept = inside & (ends | torch.from_numpy(random.random(tuple(texts.shape)) >= share))
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
    left = kept.sum(dim=1)
    shorter = texts.gather(1, order).masked_fill(place >= left[:, None], 0)
    return shorter[:, : int(left.max())], left


def without_regions(images: Tensor, share: float, drawn: np.ndarray) -> Tensor:
    """Images (N, R, features), each region set to 0, which is padding, where `drawn` (N, R) is below `share`.

    An image that would have no region left keeps all of them.
    """
    kept = torch.from_numpy(drawn >= share)
    kept |= ~(kept & images.any(dim=2)).any(dim=1, keepdim=True)
    return images * kept[:, :, None].to(images.dtype)


def relation_of(split: CaptionedImages) -> Relation | None:
    """Which images and texts belong together, where texts may belong to several images; else None: image ids decide."""
    if split.pairs is None:
        return None
    return Relation(torch.from_numpy(split.pairs), len(split.images), len(split.captions))


class EpochSampler(Sampler):
    """Draws of pairs, shuffled anew each epoch by seed and epoch only, so that a resumed run draws the same.

    images: (P,) the image of each pair. together: how many pairs of an image follow each other in an epoch, and so are
    in one batch unless it ends between them; an image's remainder forms a smaller group. least: a remainder of fewer
    pairs is left out: one pair has no negatives, and each process that shares a batch needs a pair.
    """

    def __init__(self, images: np.ndarray, batch_size: int, seed: int, together: int = 1, least: int = 2):
        whole("captions_per_image", together)
        self.least = least
        self.images, self.batch_size, self.seed, self.together, self.epoch = images, batch_size, seed, together, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        size = len(self.images)
        return size // self.batch_size + (size % self.batch_size >= self.least)

    def __iter__(self) -> Iterator[Draw]:
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.images))
        if self.together > 1:
            order = grouped(order, self.images[order], self.together, random)
        for batch in range(len(self)):
            yield Draw(self.epoch, order[batch * self.batch_size : (batch + 1) * self.batch_size])


def grouped(order: np.ndarray, images: np.ndarray, together: int, random: np.random.Generator) -> np.ndarray:
    """`order` with up to `together` elements of the same image next to each other, their groups shuffled."""
    by_image = images.argsort(kind="stable")
    first = np.r_[True, np.diff(images[by_image]) != 0]
    place = np.arange(len(order)) - np.flatnonzero(first)[first.cumsum() - 1]
    group = (first | (place % together == 0)).cumsum() - 1
    return order[by_image][random.permutation(group[-1] + 1)[group].argsort(kind="stable")]
