"""The Lightning data module: splits, vocabulary and tokenised texts of a source, each read once, and batches."""

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader

from vsehub.checks import probability, require, whole
from vsehub.data.photos.pictures import prepared
from vsehub.data.sources import CaptionedImages, Source
from vsehub.data.text.vocabulary import Subwords, Vocabulary, Words
from vsehub.encoders.pretrained.joint.hf import tokenizer_of
from vsehub.models.encode import TextTable, text_table
from vsehub.training.batches import EpochSampler, PairDataset, ResidentBatches, fits
from vsehub.training.gather import process_number, processes
from vsehub.types import Preparation


class RetrievalDataModule(pl.LightningDataModule):
    """Loads a source's splits, builds the vocabulary from the training captions and serves batches.

    batch_size: pairs a step. eval_batch_size: images or captions encoded at a time. min_count: least number of
    occurrences of a word. max_words: longer captions are cut (None: never). captions_per_image: captions of an image in
    one batch, if it has as many. drop_words: share of a caption's words that a step drops. tokenizer: a Hugging Face
    model, by name or folder, whose subwords are taken instead of words. workers: number of loader processes; 0 loads in
    the main process, which is fastest for features and small pictures, 1 or more is faster for photos. resident:
    whether the training device holds all images, if they are an array that fits, and all texts, and gathers the
    batches. same_batches: whether each epoch has the batches of the first. words: the vocabulary of the text encoder;
    None: it is built. preparation: the image encoder's preprocessing of pictures; None: the data's own. Raises
    InputError for batches of a single pair, which has no negatives.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int = 128,
        eval_batch_size: int = 256,
        min_count: int = 4,
        max_words: int | None = None,
        captions_per_image: int = 1,
        tokenizer: str | None = None,
        workers: int = 0,
        resident: bool = True,
        seed: int = 0,
        words: Words | None = None,
        preparation: Preparation | None = None,
        drop_words: float = 0.0,
        same_batches: bool = False,
    ):
        super().__init__()
        whole("batch_size", batch_size)
        whole("eval_batch_size", eval_batch_size)
        whole("min_count", min_count)
        whole("captions_per_image", captions_per_image)
        if max_words is not None:
            whole("max_words", max_words)
        probability("augmentation.drop_words", drop_words)
        require(
            batch_size >= 2,
            f"batch_size is {batch_size}; expected at least 2, since the negatives are the batch's other pairs",
        )
        self.source, self.batch_size, self.eval_batch_size = source, batch_size, eval_batch_size
        self.min_count, self.max_words, self.seed = min_count, max_words, seed
        self.workers, self.resident = workers, resident
        self.captions_per_image, self.drop_words = captions_per_image, drop_words
        self.tokenizer, self.same_batches = tokenizer, same_batches
        self.splits: dict[str, CaptionedImages] = {}
        self.tables: dict[str, TextTable] = {}
        self.preparation, self._words = preparation, words
        self._vocabulary: Words | None = None

    def setup(self, stage: str | None = None) -> None:
        """Load the training and validation splits."""
        for split in ("train", "val"):
            self.load(split)
        require(
            self.tokenizer is None or isinstance(self.splits["train"].captions, list),
            "loader.tokenizer is set but the data's texts are vectors; leave it out",
        )

    def load(self, split: str) -> tuple[CaptionedImages, TextTable]:
        """A split and its tokenised captions, or its texts' vectors, read once."""
        self._load_split(split)
        if split not in self.tables:
            self.tables[split] = text_table(self.splits[split].captions, self.vocabulary, self.max_words)
        return self.splits[split], self.tables[split]

    @property
    def vocabulary(self) -> Words | None:
        """The tokenizer's subwords, or the words of the training captions; None where the texts are vectors."""
        captions = self._load_split("train").captions
        if self._vocabulary is None and isinstance(captions, list):
            if self._words is not None:
                self._vocabulary = self._words
            elif self.tokenizer is not None:
                tokenizer = tokenizer_of(self.tokenizer, "loader.tokenizer")
                self._vocabulary = Subwords.from_json(tokenizer.backend_tokenizer.to_str())
            else:
                self._vocabulary = Vocabulary.build(captions, self.min_count)
        return self._vocabulary

    def _load_split(self, split: str) -> CaptionedImages:
        if split not in self.splits:
            self.splits[split] = prepared(self.source.load(split), self.preparation)
        return self.splits[split]

    @property
    def text_shape(self) -> tuple[int, ...] | None:
        """The shape of a text that is a vector; None where texts are captions."""
        captions = self._load_split("train").captions
        return None if isinstance(captions, list) else tuple(captions.shape[1:])

    def train_dataloader(self) -> DataLoader | ResidentBatches:
        """Shuffled batches: whole ones or, where several processes train together, this one's share of each.

        Raises InputError where there are too few pairs, or a batch cannot be shared equally.
        """
        count = processes()
        dataset = PairDataset(
            *self.load("train"), self.seed, self.drop_words, process=process_number(), processes=count
        )
        min_pairs = max(2, count)
        require(
            len(dataset) >= min_pairs,
            f"the training split has {len(dataset)} pairs; expected at least {min_pairs}, "
            + ("one to contrast with the other" if count == 1 else "one for each process"),
        )
        require(
            self.batch_size % count == 0,
            f"loader.batch_size is {self.batch_size}, the pairs of a batch over all processes, which {count} processes "
            f"cannot share equally; give a multiple of {count}",
        )
        sampler = EpochSampler(
            dataset.split.pairs[:, 0], self.batch_size, self.seed, self.captions_per_image, min_pairs, self.same_batches
        )
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        if self.resident and fits(dataset, device):
            return ResidentBatches(dataset, sampler, device)
        return DataLoader(
            dataset,
            batch_size=None,
            sampler=sampler,
            num_workers=self.workers,
            pin_memory=torch.cuda.is_available(),
            persistent_workers=False,
        )
