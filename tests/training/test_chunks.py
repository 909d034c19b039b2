"""A batch that is encoded in parts must give the loss and the gradients of the whole, in the memory of a part."""

import pytest
import torch
from looped import looped
from torch import nn

from vsehub.checks import InputError
from vsehub.encoders import ImageCNN, ImageFeatures, ImageRegions, TextGRU, TextTransformer
from vsehub.losses import HAL, InfoNCE, MaxMargin, NeighborRetr
from vsehub.neighbors import MemoryBank
from vsehub.similarities import Cosine, CrossAttention, Order
from vsehub.training.module import RetrievalModule, encode_in_chunks, require_no_batch_norm
from vsehub.types import Batch

PAIRS, DIM, WORDS = 23, 8, 40


def batch(regions=None):
    """Pairs of twelve images, most of which have two captions, the shorter ones padded."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(2, 9, (PAIRS,), generator=random)
    texts = torch.randint(4, WORDS, (PAIRS, 8), generator=random).masked_fill(torch.arange(8) >= lengths[:, None], 0)
    texts[1, :2] = texts[0, :2]  # a common beginning
    shape = (PAIRS, 6) if regions is None else (PAIRS, regions, 6)
    images = torch.randn(shape, generator=random, dtype=torch.float64)
    if regions is not None:
        images[3, 2:] = 0  # an image with fewer regions
    return Batch(images, texts, lengths, torch.arange(PAIRS) // 2, torch.arange(PAIRS))


def module(encoders, similarity, loss, chunk, bank=False, positives="image"):
    """A module with the same weights each time, in float64."""
    torch.manual_seed(1)
    images, texts = (make() for make in encoders)
    built = RetrievalModule(images, texts, similarity(), loss(), None, None, positives, chunk=chunk).double()
    built.log_dict = lambda *_, **__: None
    if bank:
        built.bank = MemoryBank(3, "exact")
        random = torch.Generator().manual_seed(2)
        sides = [nn.functional.normalize(torch.randn(40, DIM, generator=random).double(), dim=1) for _ in range(2)]
        built.bank.fill(*sides, torch.arange(40) + 5, torch.arange(40) + 100)
    return built


def step(module, inputs):
    """The loss of a training step, and each parameter's gradient."""
    loss = module.training_step(inputs, 0)
    loss.backward()
    return loss.item(), {name: parameter.grad for name, parameter in module.named_parameters()}


VECTORS = (lambda: ImageFeatures((6,), DIM), lambda: TextGRU(WORDS, DIM, 5))
CASES = {
    "HAL, prefix GRU": (VECTORS, Cosine, HAL, False),
    "HAL with bank": (VECTORS, Cosine, HAL, True),
    "NeighborRetr with bank": (VECTORS, Cosine, NeighborRetr, True),
    "MAX, order": (VECTORS, Order, MaxMargin, False),
    "InfoNCE, transformer": (
        (VECTORS[0], lambda: TextTransformer(WORDS, DIM, 8, dropout=0.0, heads=2)), Cosine, InfoNCE, False,
    ),
    "InfoNCE, sets": (
        (lambda: ImageRegions((4, 6), DIM), lambda: TextGRU(WORDS, DIM, 5, bidirectional=True, pooling="none")),
        CrossAttention, InfoNCE, False,
    ),
}  # fmt: skip


@looped("case", CASES)
@looped("positives", ["image", "pair"])
def test_gradients_are_those_of_the_whole_batch(case, positives, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)  # the module and the bank narrow what they get
    encoders, similarity, loss, bank = CASES[case]
    inputs = batch(4 if "sets" in case else None)
    wanted = step(module(encoders, similarity, loss, None, bank, positives), inputs)
    for chunk in (7, 22, 100):  # 22: then one row
        result = step(module(encoders, similarity, loss, chunk, bank, positives), inputs)
        torch.testing.assert_close(result, wanted, rtol=1e-9, atol=1e-12)


class Rows(nn.Module):
    """Counts the rows it is given, and keeps a large intermediate value."""

    def __init__(self):
        super().__init__()
        self.wide, self.sizes = nn.Linear(6, 500), []

    def forward(self, rows):
        self.sizes.append(len(rows))
        return nn.functional.dropout(self.wide(rows).tanh(), 0.5).sum(dim=1, keepdim=True).expand(-1, DIM)


def test_no_more_rows_than_a_chunk_are_held_and_dropout_is_drawn_once():
    images = torch.randn(64, 6)
    sizes = {}
    for chunk in (None, 8):
        torch.manual_seed(0)
        rows, held = Rows(), []
        with torch.autograd.graph.saved_tensors_hooks(lambda t: held.append(t.numel()) or t, lambda t: t):  # noqa: B023
            encoding = encode_in_chunks(rows, (images,), chunk)
        sizes[chunk] = sum(held)
        encoding.square().sum().backward()
        assert max(rows.sizes) == (chunk or 64)
        assert sum(rows.sizes) == (64 if chunk is None else 128)  # once more in the backward pass
        # The gradient of what was found: other masks in the second pass would give another.
        torch.manual_seed(0)
        again = Rows()
        sides = [again(part) for part in images.split(chunk or 64)]
        torch.cat(sides).square().sum().backward()
        torch.testing.assert_close(rows.wide.weight.grad, again.wide.weight.grad)
    assert sizes[8] < sizes[None] / 50
    with torch.no_grad():
        rows.sizes.clear()
        encode_in_chunks(rows, (images,), 8)
    assert rows.sizes == [64]


def test_an_encoder_that_mixes_rows_is_refused():
    with pytest.raises(InputError, match=r"encoder ImageCNN normalises over the batch \(features.0.1, .*tune=f"):
        require_no_batch_norm("image", ImageCNN((3, 32, 32), 8), "loader.chunk encodes a batch in parts")
    frozen = ImageFeatures((6,), DIM)
    frozen.net = nn.BatchNorm1d(3)
    frozen.train = lambda mode=True: (nn.Module.train(frozen, mode), frozen.net.eval())
    require_no_batch_norm("image", frozen, "so")
    require_no_batch_norm("image", ImageCNN((3, 32, 32), 8, norm="group"), "so")
    with pytest.raises(InputError, match=r"loader.chunk is 0; expected a whole number above 0"):
        module(VECTORS, Cosine, HAL, 0)
