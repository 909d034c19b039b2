"""Two ways to train the same model: ours, and the plain way that most code of the field goes."""

import contextlib
import time
import warnings

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset

from experiments.benchmarks.common import synchronize
from vsehub.criteria import NearestNeighbor
from vsehub.encoders import ImageFeatures, TextGRU
from vsehub.encoders.pooling import GPO, inside
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import evaluate
from vsehub.losses import HAL
from vsehub.models.encode import encode_split
from vsehub.similarities import Cosine
from vsehub.training.batches import ResidentBatches
from vsehub.training.datamodule import RetrievalDataModule
from vsehub.training.module import RetrievalModule
from vsehub.types import Batch

CLIP, RATE, WARMUP = 2.0, 1e-3, 50
STAGES = ("load", "encode", "loss", "backward", "optimiser")
warnings.filterwarnings("ignore", message=".*self.trainer.*")


class PlainGPO(GPO):
    """Generalised pooling of padded states by torch's own sort, the weights computed for each caption."""

    def forward(self, states: Tensor, lengths: Tensor) -> Tensor:
        """(N, L, D), (N,) -> (N, D)."""
        beyond = ~inside(states, lengths)
        ordered = states.masked_fill(beyond, -torch.inf).sort(dim=1, descending=True).values.masked_fill(beyond, 0)
        weights = self.weights(lengths, states.shape[1])[:, :, None]
        return (weights * ordered).sum(dim=1)


class PlainText(TextGRU):
    """torch.nn.GRU over packed sequences; expects captions sorted by length."""

    def __init__(self, *sizes: int):
        super().__init__(*sizes, bidirectional=True, pooling="gpo")
        with torch.random.fork_rng(devices=[]):  # what is drawn after it is drawn for our way too
            pool = PlainGPO()
        pool.load_state_dict(self.pool.state_dict())
        self.pool = pool

    def forward(self, texts: Tensor, lengths: Tensor) -> Tensor:
        """(N, L), (N,) -> (N, D)."""
        packed = pack_padded_sequence(self.words(texts), lengths.cpu(), batch_first=True)
        states = pad_packed_sequence(self.gru(packed)[0], batch_first=True)[0]
        return self.pool(states.unflatten(2, (2, -1)).mean(dim=2), lengths)


class PairItems(Dataset):
    """One pair an item: its image row read and its caption tokenised when asked for."""

    def __init__(self, data: RetrievalDataModule):
        self.split, self.vocabulary = data.load("train")[0], data.vocabulary

    def __len__(self) -> int:
        return len(self.split.captions)

    def __getitem__(self, caption: int) -> tuple:
        image = int(self.split.pairs[caption, 0])
        features = torch.from_numpy(np.array(self.split.images[image], dtype=np.float32))
        return features, torch.tensor(next(self.vocabulary.encode_all([self.split.captions[caption]]))), image, caption

    @staticmethod
    def collate(items: list[tuple]) -> Batch:
        """Sort by length, pad, stack."""
        items = sorted(items, key=lambda item: len(item[1]), reverse=True)
        images, texts, image_ids, captions = zip(*items, strict=True)
        lengths = torch.tensor([len(text) for text in texts])
        padded = pad_sequence(texts, batch_first=True)
        return Batch(torch.stack(images), padded, lengths, torch.tensor(image_ids), torch.tensor(captions))


def our_text(words: int, dim: int) -> TextGRU:
    """The default text encoder without its dropout, which would make the two ways' steps differ."""
    return TextGRU(words, dim, bidirectional=True, pooling="gpo")


class Way:
    """A model in training, a step at a time.

    plain: the plain way instead of ours. precision: "32-true" or "bf16-mixed". resident: whether our batches are
    gathered on the device, not copied there. compile_mode: as of `RetrievalModule`. `seconds` holds each stage's, step
    by step, where `stages` is set.
    """

    def __init__(
        self,
        data: RetrievalDataModule,
        device: torch.device,
        precision: str,
        plain: bool = False,
        dim: int = 1024,
        resident: bool = True,
        compile_mode: str | None = None,
    ):
        torch.manual_seed(data.seed)
        features = data.load("train")[0].images.shape[1:]
        text = PlainText(len(data.vocabulary), dim) if plain else our_text(len(data.vocabulary), dim)
        self.module = RetrievalModule(
            ImageFeatures(tuple(features), dim), text, Cosine(), HAL(), None, None, compile_mode=compile_mode
        ).to(device)
        settings = {} if plain else {"fused": True}
        self.optimizer = torch.optim.Adam(self.module.parameters(), lr=RATE, **settings)
        self.data, self.device = data, device
        self.autocast = precision == "bf16-mixed"
        self.stages = False
        self.seconds: dict[str, list[float]] = {stage: [] for stage in STAGES}
        self.steps = 0
        if plain:
            pairs = PairItems(data)
            self.loader = DataLoader(
                pairs, data.batch_size, shuffle=True, collate_fn=PairItems.collate, pin_memory=device.type == "cuda"
            )
        else:
            data.resident = resident
            self.loader = data.train_dataloader()
            if resident:  # without a trainer it is on the CPU
                self.loader = ResidentBatches(self.loader.dataset, self.loader.sampler, device)
        self._batches, self._epoch = iter(()), 0

    def next_batch(self) -> Batch:
        """The next batch, epoch after epoch."""
        batch = next(self._batches, None)
        if batch is None:
            if hasattr(self.loader.sampler, "set_epoch"):
                self.loader.sampler.set_epoch(self._epoch)
            self._epoch += 1
            self._batches = iter(self.loader)
            batch = next(self._batches)
        return Batch(*(None if field is None else field.to(self.device, non_blocking=True) for field in batch))

    def step(self) -> None:
        """One training step."""
        module, mark = self.module, self._mark
        mark(None)
        batch = self.next_batch()
        mark("load")
        with torch.autocast(self.device.type, torch.bfloat16) if self.autocast else contextlib.nullcontext():
            images, texts = (
                module.encode(module.image_encoder, (batch.images,), None),
                module.encode(module.text_encoder, (batch.texts, batch.lengths), None),
            )
        images, texts = images.float(), texts.float()
        mark("encode")
        neighbors, positives = module.neighbors(images, texts, batch), module.positive_mask(batch)
        loss = module.score(module.similarity, module.loss, images, texts, positives, neighbors)[1]["loss"]
        mark("loss")
        self.optimizer.zero_grad()
        loss.backward()
        mark("backward")
        nn.utils.clip_grad_norm_(module.parameters(), CLIP)
        for group in self.optimizer.param_groups:
            group["lr"] = RATE * min(1, (self.steps + 1) / WARMUP)
        self.optimizer.step()
        mark("optimiser")
        self.steps += 1

    def reach(self, rsum: float, every: int, limit: int) -> dict[str, float]:
        """Train until the rsum on val, measured every so many steps, reaches a value, or for `limit` steps.

        Returns the steps, their seconds without the measuring, and the rsum reached.
        """
        reached, seconds = 0.0, 0.0
        while reached < rsum and self.steps < limit:
            began = time.perf_counter()
            for _ in range(min(every, limit - self.steps)):
                self.step()
            synchronize(self.device)
            seconds += time.perf_counter() - began
            reached = self.rsum()
        return {"steps": self.steps, "seconds": seconds, "rsum": reached}

    def rsum(self) -> float:
        """On val, encoded our way."""
        text = self.module.text_encoder
        reader = our_text(len(self.data.vocabulary), text.gru.hidden_size).to(self.device)
        reader.load_state_dict(text.state_dict())
        split = encode_split(self.module.image_encoder, reader, *self.data.load("val"))
        return evaluate(split, self.module.similarity, NearestNeighbor(), Protocol("single")).metrics["rsum"]

    def _mark(self, stage: str | None) -> None:
        if not self.stages:
            return
        synchronize(self.device)
        now = time.perf_counter()
        if stage:
            self.seconds[stage].append(now - self._last)
        self._last = now
