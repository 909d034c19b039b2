"""Batches from a source: tokenised once, memory-mapped images, a whole batch at a time."""

from collections.abc import Iterator

import numpy as np
import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from vsehub.checks import require
from vsehub.data.captioned import CaptionedImages, Source
from vsehub.data.tokens import TokenTable
from vsehub.data.vocabulary import Vocabulary
from vsehub.types import Batch


class PairDataset(Dataset):
    """Image-caption pairs of a split; asked with an array of caption numbers it gives a whole Batch."""

    def __init__(self, split: CaptionedImages, table: TokenTable):
        self.split, self.table = split, table

    def __len__(self) -> int:
        return len(self.table)

    def __getitem__(self, captions: np.ndarray) -> Batch:
        images = self.split.image_index[captions]
        texts, lengths = self.table.batch(captions)
        return Batch(
            images=torch.from_numpy(np.ascontiguousarray(self.split.images[images])),
            texts=texts,
            lengths=lengths,
            image_ids=torch.from_numpy(images),
            caption_ids=torch.from_numpy(captions),
        )


class EpochSampler(Sampler):
    """Arrays of caption numbers, shuffled anew each epoch by seed and epoch alone, so that a resumed run draws alike.

    A remainder of one pair, which has no negatives, is left out.
    """

    def __init__(self, size: int, batch_size: int, seed: int):
        self.size, self.batch_size, self.seed, self.epoch = size, batch_size, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.size // self.batch_size + (self.size % self.batch_size > 1)

    def __iter__(self) -> Iterator[np.ndarray]:
        order = np.random.default_rng([self.seed, self.epoch]).permutation(self.size)
        for batch in range(len(self)):
            yield order[batch * self.batch_size : (batch + 1) * self.batch_size]


class RetrievalDataModule(pl.LightningDataModule):
    """Loads a source's splits, builds the vocabulary from the training captions and serves batches.

    batch_size: pairs a step. eval_batch_size: images or captions encoded at a time. min_count: how often a word must
    be seen. max_words: longer captions are cut (None: never). workers: loader processes; 0 loads in the main process,
    which is fastest for features and small pictures. Raises InputError for a batch of one, which has no negatives.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int = 128,
        eval_batch_size: int = 256,
        min_count: int = 4,
        max_words: int | None = None,
        workers: int = 0,
        seed: int = 0,
    ):
        super().__init__()
        require(
            batch_size >= 2,
            f"batch_size is {batch_size}; expected at least 2, since the negatives are the batch's other pairs",
        )
        self.source, self.batch_size, self.eval_batch_size = source, batch_size, eval_batch_size
        self.min_count, self.max_words, self.workers, self.seed = min_count, max_words, workers, seed
        self.splits: dict[str, CaptionedImages] = {}
        self.tables: dict[str, TokenTable] = {}
        self._vocabulary: Vocabulary | None = None

    def setup(self, stage: str | None = None) -> None:
        """Load the training and validation splits."""
        for split in ("train", "val"):
            self.load(split)

    def load(self, split: str) -> tuple[CaptionedImages, TokenTable]:
        """A split and its tokenised captions, read once."""
        if split not in self.splits:
            loaded = self.source.load(split)
            self.splits[split] = loaded
            self.tables[split] = TokenTable.build(self.vocabulary, loaded.captions, self.max_words)
        return self.splits[split], self.tables[split]

    @property
    def vocabulary(self) -> Vocabulary:
        """The words of the training captions, or those given by `use_vocabulary`."""
        if self._vocabulary is None:
            if "train" not in self.splits:
                self.splits["train"] = self.source.load("train")
            captions = self.splits["train"].captions
            self._vocabulary = Vocabulary.build(captions, self.min_count)
            self.tables["train"] = TokenTable.build(self._vocabulary, captions, self.max_words)
        return self._vocabulary

    def use_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Take a checkpoint's vocabulary instead of building one; before anything is loaded."""
        self._vocabulary = vocabulary

    def train_dataloader(self) -> DataLoader:
        """Shuffled whole batches."""
        dataset = PairDataset(*self.load("train"))
        require(
            len(dataset) >= 2, f"the training split has {len(dataset)} pairs; expected at least 2, one to contrast with"
        )
        return DataLoader(
            dataset,
            batch_size=None,
            sampler=EpochSampler(len(dataset), self.batch_size, self.seed),
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=False,
        )
