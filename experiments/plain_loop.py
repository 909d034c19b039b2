"""HAL with its memory bank in a loop of plain torch, to copy: data, encoders, loss, training, measuring, correcting.

    python experiments/plain_loop.py --seed 0

takes a minute or two on two cores. It trains on the built-in scenes with the settings of `vsehub train experiment=demo
loss=hal bank=memory`, from the library's parts only. That command adds logs, resuming, sweeps and several processes.
"""

import argparse
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from vsehub.criteria import CSLS, NearestNeighbor
from vsehub.data import Scenes
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.encoders import ImageCNN, TextGRU
from vsehub.evaluation import Protocol
from vsehub.evaluation.evaluate import Evaluation, evaluate
from vsehub.losses import HAL
from vsehub.models.encode import EncodedSplit, encode_images, encode_split, encode_texts, text_table
from vsehub.neighbors import MemoryBank
from vsehub.similarities import Cosine


@dataclass
class Settings:
    """Those of the demo. size: of the scenes: tiny, default or large. fraction: of the pairs that fill the bank."""

    size: str = "default"
    seed: int = 0
    epochs: int = 6
    decay_epoch: int = 4
    batch_size: int = 64
    dim: int = 256
    width: int = 16
    word_dim: int = 128
    lr: float = 0.003
    warmup: int = 50
    clip: float = 2.0
    gamma: float = 30.0
    epsilon: float = 0.3
    fraction: float = 0.05


class Model(nn.Module):
    """Both encoders, in a space of `dim` dimensions."""

    def __init__(self, settings: Settings, image_shape: tuple[int, ...], words: int):
        super().__init__()
        self.images = ImageCNN(image_shape=image_shape, dim=settings.dim, width=settings.width)
        self.texts = TextGRU(vocabulary_size=words, dim=settings.dim, word_dim=settings.word_dim)


class Data:
    """Splits with their captions as numbers; the vocabulary is that of the training captions."""

    def __init__(self, size: str):
        source = Scenes(size=size)
        self.splits = {name: source.load(name) for name in ("train", "val", "test")}
        self.words = Vocabulary.build(list(self.splits["train"].captions), min_count=4)
        self.tables = {name: text_table(split.captions, self.words, None) for name, split in self.splits.items()}
        self.pairs = self.splits["train"].pairs  # (P, 2): image and caption

    def batch(self, rows: np.ndarray) -> tuple[Tensor, Tensor, Tensor, np.ndarray]:
        """Images, texts, lengths and the numbers (N, 2) of image and caption of some pairs."""
        pairs = self.pairs[rows]
        images = torch.from_numpy(np.ascontiguousarray(self.splits["train"].images[pairs[:, 0]]))
        return images, *self.tables["train"].batch(pairs[:, 1]), pairs

    def encoded(self, model: Model, name: str) -> EncodedSplit:
        """A split in the joint space."""
        return encode_split(model.images, model.texts, self.splits[name], self.tables[name])


def refill(bank: MemoryBank, model: Model, data: Data, rows: np.ndarray) -> None:
    """Encode a sample of the training pairs anew; HAL weighs a batch by its nearest neighbours among them."""
    pairs = data.pairs[rows]
    images = encode_images(model.images, data.splits["train"].images, pairs[:, 0])
    texts = encode_texts(model.texts, data.tables["train"], pairs[:, 1])
    ids = torch.from_numpy(pairs).unbind(dim=1)
    bank.fill(Cosine().vectors(images), Cosine().vectors(texts), *ids)


def train(settings: Settings, data: Data) -> Model:
    """The model of the epoch with the largest rsum on validation."""
    torch.manual_seed(settings.seed)
    random = np.random.default_rng(settings.seed)
    model = Model(settings, tuple(data.splits["train"].images.shape[1:]), len(data.words))
    similarity, loss = Cosine(), HAL(gamma=settings.gamma, epsilon=settings.epsilon)
    bank, size = MemoryBank(k=None), max(1, round(settings.fraction * len(data.pairs)))
    optimizer = torch.optim.Adam(model.parameters(), lr=settings.lr)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, settings.decay_epoch, gamma=0.1)
    best, weights_of_best, step = -1.0, {}, 0
    for epoch in range(settings.epochs):
        if epoch > 0:  # in the first epoch the encoders are random, and so would the bank be
            refill(bank, model, data, np.sort(random.choice(len(data.pairs), size, replace=False)))
        model.train()
        order = random.permutation(len(data.pairs))
        for start in range(0, len(order) - 1, settings.batch_size):
            images, texts, lengths, pairs = data.batch(order[start : start + settings.batch_size])
            image_ids, caption_ids = torch.from_numpy(pairs).unbind(dim=1)
            ours, theirs = model.images(images), model.texts(texts, lengths)
            with torch.no_grad():
                sides = similarity.vectors(ours), similarity.vectors(theirs)
                neighbors = bank.query(*sides, image_ids, caption_ids) if len(bank) else None
            positives = image_ids[:, None] == image_ids[None, :]
            value = loss(similarity(ours, theirs), positives, neighbors)["loss"]
            optimizer.zero_grad()
            value.backward()
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
            step += 1
            (group,) = optimizer.param_groups
            group["lr"] = scheduler.get_last_lr()[0] * min(1.0, step / settings.warmup)  # the first steps are small
            optimizer.step()
        group["lr"] = scheduler.get_last_lr()[0]
        scheduler.step()
        rsum = measured(model, data, "val").metrics["rsum"]
        print(f"epoch {epoch}: loss {value.item():.3f}, val rsum {rsum:.1f}", flush=True)
        if rsum > best:
            best, weights_of_best = rsum, {name: weight.clone() for name, weight in model.state_dict().items()}
    model.load_state_dict(weights_of_best)
    return model


def measured(model: Model, data: Data, split: str, corrected: bool = False) -> Evaluation:
    """Recalls and hubness of a split; corrected: by CSLS, fitted on the training captions and images (inductive)."""
    criterion, reference = (CSLS(k=10), data.encoded(model, "train")) if corrected else (NearestNeighbor(), None)
    return evaluate(data.encoded(model, split), Cosine(), criterion, Protocol("single"), reference)


def main(argv: list[str] | None = None) -> dict[str, float]:
    """Train and measure; returns rsum on test, plain and corrected."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--size", default="default", choices=["tiny", "default", "large"], help="of the scenes")
    parser.add_argument("--epochs", type=int, default=6)
    options = parser.parse_args(argv)
    data = Data(options.size)
    model = train(Settings(size=options.size, seed=options.seed, epochs=options.epochs), data)
    results = {name: measured(model, data, "test", name == "csls").metrics for name in ("nns", "csls")}
    for name, metrics in results.items():
        print(f"test, {name}: rsum {metrics['rsum']:.1f}, hs_sum {metrics['hubness/hs_sum']:.2f}")
    return {name: metrics["rsum"] for name, metrics in results.items()}


if __name__ == "__main__":
    main()
