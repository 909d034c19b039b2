"""Batches of training pairs: the draws of an epoch, and the images and texts of each draw.

Everything random depends only on the seed, the epoch and the rows, so that a resumed run draws what an unbroken one
would.
"""

import warnings
from collections.abc import Iterator
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from vsehub.checks import require
from vsehub.data.photos.pictures import Pictures
from vsehub.data.sources import CaptionedImages
from vsehub.data.text.tokens import TokenTable
from vsehub.models.encode import TextTable
from vsehub.positives import Positives
from vsehub.training.gather import share_of
from vsehub.types import Batch


def without_words(
    texts: Tensor, lengths: Tensor, probability: float, random: np.random.Generator
) -> tuple[Tensor, Tensor]:
    """Captions (N, L) of `lengths` (N,) with words dropped by `probability`, and their new lengths.

    The first and the last word of a caption stay.
    """
    column = torch.arange(texts.shape[1])
    inside = column < lengths[:, None]
    ends = (column == 0) | (column == lengths[:, None] - 1)
    stays = inside & (ends | torch.from_numpy(random.random(tuple(texts.shape)) >= probability))
    remaining = stays.sum(dim=1)
    order = (~stays).to(torch.uint8).argsort(dim=1, stable=True)  # the words that stay come first, in their order
    shorter = texts.gather(1, order).masked_fill(column >= remaining[:, None], 0)
    return shorter[:, : int(remaining.max())], remaining


class Draw(NamedTuple):
    """The pairs of a batch: rows (N,) of the training pairs, and the epoch, on which crops and dropped words depend."""

    epoch: int
    rows: np.ndarray


class PairDataset(Dataset):
    """Image-text pairs of a split. Indexing with a `Draw` returns a whole `Batch`.

    seed: seed of all random draws. drop_words: probability of leaving out a word of a caption (VSE∞, Chen et al. 2021:
    0.2); `<start>` and `<end>` stay. process, processes: this process's number, and how many processes share each
    batch. A process loads the images and texts of its own share, equal to those of a single process. Raises InputError
    if words are to be dropped but the texts are vectors.
    """

    def __init__(
        self,
        split: CaptionedImages,
        table: TextTable,
        seed: int = 0,
        drop_words: float = 0.0,
        process: int = 0,
        processes: int = 1,
    ):
        require(
            not drop_words or isinstance(table, TokenTable),
            "augmentation.drop_words is set but the data's texts are vectors",
        )
        self.split, self.table, self.seed, self.drop_words = split, table, seed, drop_words
        self.process, self.processes = process, processes
        self.positives = positives_of(split)

    def __len__(self) -> int:
        return len(self.split.pairs)

    def __getitem__(self, draw: Draw) -> Batch:
        images, captions = self.split.pairs[draw.rows].T
        part = share_of(self.process, len(draw.rows), self.processes)
        source = self.split.images
        if isinstance(source, Pictures) and source.augments:
            loaded = source.augmented(images[part], captions[part], (self.seed, draw.epoch))
        else:
            loaded = source[images[part]]
        if self.drop_words:
            # Every process draws for the whole batch and takes its share, as a single process would draw.
            random = np.random.default_rng([self.seed, draw.epoch, int(draw.rows[0])])
            texts, lengths = without_words(*self.table.batch(captions), self.drop_words, random)
            lengths = lengths[part]
            texts = texts[part, : int(lengths.max())]
        else:
            texts, lengths = self.table.batch(captions[part])
        image_ids, caption_ids = torch.from_numpy(images.copy()), torch.from_numpy(captions.copy())
        positives = None if self.positives is None else self.positives.related(image_ids[:, None], caption_ids)
        return Batch(torch.from_numpy(np.ascontiguousarray(loaded)), texts, lengths, image_ids, caption_ids, positives)


def positives_of(split: CaptionedImages) -> Positives | None:
    """The captions of each image if a caption belongs to several images; else None, and image ids decide."""
    if not split.shared:
        return None
    images, captions = torch.from_numpy(split.pairs).unbind(dim=1)
    return Positives.from_pairs(images, captions, len(split.images), len(split.captions), complete=False)


WIDTHS = 8  # batches of texts on a GPU are padded to multiples of so many words


class EpochSampler(Sampler):
    """Draws of pairs, shuffled anew each epoch by seed and epoch only, so that a resumed run draws the same.

    images: (P,) the image of each pair. per_image: the number of pairs of one image that follow each other, so that
    they are usually in one batch; the last group of an image may be smaller. min_pairs: the fewest pairs of a batch; a
    smaller last batch is left out, since one pair has no negatives and each process needs a pair. same_batches: whether
    all epochs have the batches of the first epoch.
    """

    def __init__(
        self,
        images: np.ndarray,
        batch_size: int,
        seed: int,
        per_image: int = 1,
        min_pairs: int = 2,
        same_batches: bool = False,
    ):
        self.images, self.batch_size, self.seed, self.epoch = images, batch_size, seed, 0
        self.per_image, self.min_pairs, self.same_batches = per_image, min_pairs, same_batches

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = 0 if self.same_batches else epoch

    def __len__(self) -> int:
        size = len(self.images)
        return size // self.batch_size + (size % self.batch_size >= self.min_pairs)

    def __iter__(self) -> Iterator[Draw]:
        random = np.random.default_rng([self.seed, self.epoch])
        order = random.permutation(len(self.images))
        if self.per_image > 1:
            order = group_by_image(order, self.images[order], self.per_image, random)
        for batch in range(len(self)):
            yield Draw(self.epoch, order[batch * self.batch_size : (batch + 1) * self.batch_size])


class ResidentBatches:
    """The batches of a loader, gathered on the device, which holds all images and texts; no step copies data to it.

    dataset, sampler: those of the loader; the images are an array, and no words are dropped. device: the device of the
    training; on a CPU the array of the images is not copied.
    """

    def __init__(self, dataset: PairDataset, sampler: EpochSampler, device: torch.device):
        self.dataset, self.sampler, self.device = dataset, sampler, device

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        data, positives = self.dataset, self._positives
        images, texts, lengths = self._resident
        draws = [draw.rows for draw in self.sampler]
        sizes = [len(rows) for rows in draws]
        image_and_caption = torch.from_numpy(np.ascontiguousarray(data.split.pairs[np.concatenate(draws)].T))
        # The lengths stay on the host: reading them from a GPU would make each step wait for it.
        host_lengths = torch.from_numpy(data.table.lengths)[image_and_caption[1]].split(sizes)
        batches = image_and_caption.to(self.device).split(sizes, dim=1)
        for (image_ids, caption_ids), counts in zip(batches, host_lengths, strict=True):
            part = share_of(data.process, len(counts), data.processes)
            trimmed = texts[:, : self._width(int(counts[part].max()))] if isinstance(data.table, TokenTable) else texts
            yield Batch(
                images[image_ids[part]],
                trimmed[caption_ids[part]],
                lengths[caption_ids[part]],
                image_ids,
                caption_ids,
                None if positives is None else positives.related(image_ids[:, None], caption_ids),
            )

    def _width(self, longest: int) -> int:
        """The columns of a batch of texts. On a GPU few widths occur, since each is compiled or captured by itself."""
        return longest if self.device.type == "cpu" else longest + -longest % WIDTHS

    @cached_property
    def _resident(self) -> list[Tensor]:
        """All images, all texts, padded to the longest, and their lengths, on the device."""
        table = self.dataset.table
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # the array may be read-only
            images = torch.from_numpy(self.dataset.split.images)
        return [rows.to(self.device) for rows in (images, *table.batch(np.arange(len(table))))]

    @cached_property
    def _positives(self) -> Positives | None:
        positives = self.dataset.positives
        return None if positives is None else positives.to(self.device)


def fits(dataset: PairDataset, device: torch.device) -> bool:
    """Return True if `ResidentBatches` can serve the data; on a GPU they may take half of the free memory."""
    images, table = dataset.split.images, dataset.table
    if not isinstance(images, np.ndarray) or dataset.drop_words:
        return False
    if device.type != "cuda":
        return True
    longest, _ = table.batch(np.array([table.lengths.argmax()]))
    free, _ = torch.cuda.mem_get_info(device)
    return 2 * (images.nbytes + len(table) * longest.nbytes) <= free


def group_by_image(order: np.ndarray, images: np.ndarray, size: int, random: np.random.Generator) -> np.ndarray:
    """`order` with up to `size` elements of the same image next to each other, their groups shuffled.

    images: the image of each element of `order`.
    """
    by_image = images.argsort(kind="stable")
    first = np.r_[True, np.diff(images[by_image]) != 0]  # True for the first pair of each image
    rank = np.arange(len(order)) - np.flatnonzero(first)[first.cumsum() - 1]  # 0, 1, ... within the image
    group = (rank % size == 0).cumsum() - 1
    # Groups get random places; a stable sort by these keeps the elements of a group together.
    return order[by_image][random.permutation(group[-1] + 1)[group].argsort(kind="stable")]
