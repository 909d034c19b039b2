"""On a GPU a step that reads a value waits for it. Tensors of torch's meta device have none: what reads one raises."""

import contextlib
from itertools import islice

import numpy as np
import pytest
import torch

from vsehub import losses
from vsehub.data import CaptionedImages, pairs_by_caption
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.encoders import ImageFeatures, TextGRU, TextTransformer
from vsehub.losses import HAL
from vsehub.models.encode import text_table
from vsehub.neighbors import MemoryBank
from vsehub.similarities import Cosine
from vsehub.training.batches import EpochSampler, PairDataset, ResidentBatches
from vsehub.training.callbacks import WeightAverage
from vsehub.training.module import RetrievalModule, encode_in_chunks

DIM, WORDS = 16, 24
TEXTS = {
    "one direction": lambda: TextGRU(WORDS, DIM, 12),
    "the default": lambda: TextGRU(WORDS, DIM, 12, bidirectional=True, pooling="gpo", word_dropout=0.3),
    "two layers": lambda: TextGRU(WORDS, DIM, 12, layers=2, bidirectional=True, pooling="mean", cell="lstm"),
    "attention": lambda: TextTransformer(WORDS, DIM, 12, heads=2),
}


@pytest.fixture(autouse=True)
def no_autocast(monkeypatch):
    monkeypatch.setattr(torch, "autocast", lambda *_, **__: contextlib.nullcontext())  # the meta device has none


def batches():
    random = np.random.default_rng(0)
    captions = [" ".join(random.choice(["red", "cat", "sky", "sea"], 1 + row % 13)) for row in range(40)]
    images = random.random((20, 8)).astype(np.float32)
    data = CaptionedImages(images, captions, pairs_by_caption(np.arange(40) // 2))
    dataset = PairDataset(data, text_table(captions, Vocabulary.build(captions, 1), None), 5)
    return ResidentBatches(dataset, EpochSampler(data.pairs[:, 0], 5, 0), torch.device("meta"))


def filled_bank():
    """A bank of 40 pairs, filled as usual and then moved to the meta device."""
    bank, vectors = MemoryBank(k=4, backend="exact"), torch.randn(40, DIM)
    bank.fill(vectors, vectors, torch.arange(40) // 2, torch.arange(40))
    filled = {name: value.to("meta") for name, value in vars(bank).items() if isinstance(value, torch.Tensor)}
    vars(bank).update(filled)
    bank._images = bank._texts = bank._vector_index(vectors.to("meta"))
    bank._image_means = bank._text_means = lambda queries: queries[:, 0]
    return bank


def steps(text, loss, bank=None):
    """Two steps with clipping, the optimizer and the average of the weights."""
    module = RetrievalModule(ImageFeatures((8,), DIM), text, Cosine(), loss, torch.optim.Adam, None).to("meta")
    module.bank, average = bank, WeightAverage()
    trainer = type("Trainer", (), {"global_step": 0, "precision": "32-true"})()
    module.trainer = trainer
    optimizer = torch.optim.Adam(module.parameters())
    average.on_train_start(trainer, module)
    average.on_train_epoch_start(trainer, module)
    for number, batch in enumerate(islice(batches(), 2), 1):
        assert batch.texts.is_meta
        optimizer.zero_grad()
        module.training_step(batch, number).backward()
        module.configure_gradient_clipping(optimizer, 2.0, "norm")
        optimizer.step()
        trainer.global_step = number
        average.on_train_batch_end(trainer, module)
    return number


@pytest.mark.parametrize("text", TEXTS)
def test_a_step_does_not_wait_whatever_the_text_encoder(text):
    assert steps(TEXTS[text](), HAL()) == 2


@pytest.mark.parametrize("bank", [False, True])
@pytest.mark.parametrize("loss", ["HAL", "NeighborRetr", "KNNMargin", "MaxMargin", "SumMargin", "InfoNCE"])
def test_a_step_does_not_wait_whatever_the_loss(loss, bank):
    assert steps(TEXTS["one direction"](), getattr(losses, loss)(), filled_bank() if bank else None) == 2


def test_what_waits_is_noticed():
    class Reading(HAL):
        def forward(self, scores, positives, neighbors=None):
            assert scores.sum().item() >= 0
            return super().forward(scores, positives, neighbors)

    with pytest.raises((RuntimeError, NotImplementedError)):
        steps(TEXTS["one direction"](), Reading())


def test_the_default_encoder_compiles_in_one_piece(monkeypatch):
    monkeypatch.setattr("torch._dynamo.config.allow_rnn", True)
    encode = torch.compile(encode_in_chunks, backend="eager", fullgraph=True)
    batch = next(iter(batches()))
    assert encode(TEXTS["the default"]().to("meta"), (batch.texts, batch.lengths), None).shape == (5, DIM)


def test_batches_of_a_gpu_have_few_widths():
    assert {batch.texts.shape[1] for batch in batches()} <= {8, 15}  # 15: the longest caption
