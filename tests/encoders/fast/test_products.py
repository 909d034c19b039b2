"""torch's private operators of oneDNN, and the public product that takes their place."""

import pytest
import torch

from vsehub.encoders import TextGRU
from vsehub.encoders.fast import products
from vsehub.encoders.fast.products import LARGE, Product, lays_out

needs_operators = pytest.mark.skipif(not lays_out(torch.float32), reason="this torch has no such operators")


def captions(n=48, words=50, longest=9):
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator)
    texts = torch.randint(1, words, (n, longest), generator=generator)
    return texts.masked_fill(torch.arange(longest) >= lengths[:, None], 0), lengths


def trained(precision, settings):
    """The states of an encoder before, and its weights after three steps of training."""
    torch.manual_seed(0)
    encoder = TextGRU(50, dim=96, word_dim=24, **settings)
    assert encoder.gru.weight_hh_l0.numel() >= LARGE
    optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1)
    texts, lengths = captions()
    found = []
    for _ in range(3):
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == torch.bfloat16):
            states = encoder(texts, lengths)
        found.append(states.detach().clone())
        states.square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return found + [parameter.detach().clone() for parameter in encoder.parameters()]


@needs_operators
@pytest.mark.parametrize("settings", [{}, {"bidirectional": True, "pooling": "mean"}, {"layers": 2}])
@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
def test_training_and_encoding_without_the_private_operators(precision, settings, monkeypatch):
    """The public product gives the same, and the operators were used only where they are available."""
    calls = []
    product = products._product
    monkeypatch.setattr(products, "_product", lambda left, packed: calls.append(left.dtype) or product(left, packed))
    private = trained(precision, settings)
    assert set(calls) == ({precision} if lays_out(precision) else set())
    monkeypatch.setattr(products, "lays_out", lambda dtype: False)
    del calls[:]
    public = trained(precision, settings)
    assert calls == []
    tolerance = {"rtol": 1e-4, "atol": 1e-6} if precision == torch.float32 else {"rtol": 0.02, "atol": 2e-3}
    for ours, theirs in zip(public, private, strict=True):
        torch.testing.assert_close(ours, theirs, **tolerance)


PRODUCT = products._product


def raises(error):
    def changed(*arguments):
        raise error

    return changed


@pytest.mark.parametrize("settings", [{}, {"bidirectional": True}, {"layers": 2}])
def test_the_public_product_equals_torchs_own_network(settings, monkeypatch):
    """States and gradients, where no private operator is available, against each caption run by itself."""
    monkeypatch.setattr(products, "lays_out", lambda dtype: False)
    monkeypatch.setattr(products, "_laid_out", raises(AssertionError("a private operator was called")))
    monkeypatch.setattr(products, "_product", raises(AssertionError("a private operator was called")))
    torch.manual_seed(0)
    encoder = TextGRU(50, dim=96, word_dim=24, **settings)
    assert encoder.gru.weight_hh_l0.numel() >= LARGE
    texts, lengths = captions()
    ends = (
        encoder.gru(encoder.words(text[:length])[None])[1] for text, length in zip(texts, lengths.tolist(), strict=True)
    )
    directions = 1 + encoder.gru.bidirectional
    expected = torch.cat([end[-directions:].mean(dim=0) for end in ends])
    found = encoder(texts, lengths)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
    weights, factors = list(encoder.parameters()), torch.randn(found.shape)
    gradients = (torch.autograd.grad((states * factors).sum(), weights) for states in (found, expected))
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@needs_operators
@pytest.mark.parametrize(
    ("name", "changed"),
    [
        ("_laid_out", raises(AttributeError("'_OpNamespace' 'mkldnn' object has no attribute"))),
        ("_laid_out", raises(RuntimeError("expected at most 1 argument(s) but received 2"))),
        ("_product", raises(NotImplementedError("Could not run 'mkldnn::_linear_pointwise'"))),
        ("_product", raises(TypeError("_linear_pointwise() missing value for argument"))),
        ("_product", raises(ValueError("unknown attribute"))),
        ("_product", lambda left, packed: left),
        ("_product", lambda left, packed: None),
        ("_product", lambda left, packed: torch.zeros(3)),
        ("_product", lambda left, packed: PRODUCT(left, packed).double()),
        ("_product", lambda left, packed: PRODUCT(left, packed) + (len(left) == 1)),  # wrong for one row only
        ("_product", lambda left, packed: PRODUCT(left, packed) * torch.ones(128).index_fill(0, torch.tensor(127), 2)),
        ("_laid_out", lambda right: torch.ops.mkldnn._reorder_linear_weight(right.contiguous(), 64)),  # not transposed
    ],
)
def test_operators_that_a_new_torch_changed_are_not_used(name, changed, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    left, right = torch.randn(20, 128, generator=generator), torch.randn(128, 128, generator=generator)
    assert Product(right, torch.float32, repeated=True).packed is not None
    monkeypatch.setattr(products, name, changed)
    lays_out.cache_clear()
    try:
        assert not lays_out(torch.float32)
        product = Product(right, torch.float32, repeated=True)
        assert product.packed is None
        assert torch.equal(product(left), left @ right)
    finally:
        lays_out.cache_clear()


@needs_operators
def test_operators_are_used_only_where_they_pay_and_exist():
    small, large = torch.ones(8, 8), torch.ones(128, 128)
    assert Product(small, torch.float32, repeated=True).packed is None
    assert Product(large, torch.float32).packed is None
    assert Product(large, torch.float64, repeated=True).packed is None
    with torch.autocast("cpu", torch.bfloat16):
        lays_out.cache_clear()
        assert lays_out(torch.float32)
