import pytest
import torch
from looped import looped
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from vsehub.encoders import TextGRU
from vsehub.encoders.pooling import last
from vsehub.sets import Sets


def captions(seed, n=40, words=7, longest=9):
    """Few words, so that many prefixes are shared, and some whole captions are equal or prefixes of others."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator)
    texts = torch.randint(1, words, (n, longest), generator=generator)
    texts[:, 0] = 1
    texts[: n // 2, 1] = 2
    return texts.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths


def by_torch(encoder, texts, lengths):
    """The pooled states of torch's own network over packed sequences, the directions averaged."""
    rows = pack_padded_sequence(encoder.words(texts), lengths, batch_first=True, enforce_sorted=False)
    states, ends = encoder.gru(rows)
    if encoder.pool is last:
        ends = ends[0] if isinstance(ends, tuple) else ends
        return ends[-2:].mean(dim=0) if encoder.gru.bidirectional else ends[-1]
    states = pad_packed_sequence(states, batch_first=True)[0]
    if encoder.gru.bidirectional:
        states = (states[..., : encoder.gru.hidden_size] + states[..., encoder.gru.hidden_size :]) / 2
    return encoder.pool(states, lengths)


@looped("pooling", ["last", "mean", "gpo", "none"])
@looped(
    ("cell", "layers", "bidirectional"),
    [
        ("gru", 1, False),
        ("gru", 2, False),
        ("gru", 1, True),
        ("gru", 2, True),
        ("lstm", 1, False),
        ("lstm", 2, True),
    ],
)
@pytest.mark.parametrize("cpu", [True, False])
def test_equals_torch_on_packed_sequences(cpu, cell, layers, bidirectional, pooling, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_cpu", cpu)
    torch.manual_seed(0)
    settings = {"cell": cell, "layers": layers, "bidirectional": bidirectional, "pooling": pooling}
    encoder = TextGRU(7, dim=6, word_dim=5, **settings).double()
    texts, lengths = captions(0)
    answers = []
    for encode in (encoder, lambda texts, lengths: by_torch(encoder, texts, lengths)):
        encoder.zero_grad()
        encoded = encode(texts, lengths)
        states = encoded.vectors if isinstance(encoded, Sets) else encoded
        weight = torch.randn(states.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        (states * weight).sum().backward()
        answers.append([states, *(parameter.grad.clone() for parameter in encoder.parameters())])
    for ours, theirs in zip(*answers, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


@looped("pooling", ["last", "mean", "max", "gpo"])
def test_bf16_products_stay_near_float32(pooling):
    torch.manual_seed(0)
    encoder = TextGRU(7, dim=64, word_dim=32, pooling=pooling)
    exact = encoder(*captions(2))
    with torch.autocast("cpu", torch.bfloat16):
        rough = encoder(*captions(2))
    assert rough.dtype == torch.float32
    assert (rough - exact).norm() / exact.norm() < 0.02
    rough.square().sum().backward()
    assert all(torch.isfinite(p.grad).all() for p in encoder.parameters())


def test_paper_init_is_xavier_everywhere():
    encoder = TextGRU(50, dim=32, word_dim=20, init="paper")
    for name, values in encoder.named_parameters():
        if values.ndim == 1:
            assert not values.any(), name
        else:  # uniform between both bounds
            bound = (6 / sum(values.shape)) ** 0.5
            assert 0.9 * bound < values.abs().max() <= bound, name
            assert values.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), name
