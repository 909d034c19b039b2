"""torch's private operators of oneDNN, and the public product that takes their place."""

import pytest
import torch

from vsehub.encoders import TextGRU
from vsehub.encoders.fast import products
from vsehub.encoders.fast.products import LARGE, fixed_product, lays_out

needs_operators = pytest.mark.skipif(not lays_out(torch.float32), reason="this torch has no such operators")
LAID_OUT = products._laid_out


def test_both_products_equal_torchs_own_network(monkeypatch):
    """States and gradients against each caption run by itself, with the private operators and without."""
    torch.manual_seed(0)
    encoder = TextGRU(50, dim=96, word_dim=24, bidirectional=True)
    assert encoder.gru.weight_hh_l0.numel() >= LARGE
    lengths = torch.randint(1, 10, (48,))
    texts = torch.randint(1, 50, (48, 9)).masked_fill(torch.arange(9) >= lengths[:, None], 0)
    ends = (encoder.gru(encoder.words(text[:n])[None])[1] for text, n in zip(texts, lengths.tolist(), strict=True))
    expected = torch.cat([end.mean(dim=0) for end in ends])
    weights, factors = list(encoder.parameters()), torch.randn(expected.shape)
    gradients = torch.autograd.grad((expected * factors).sum(), weights)
    for large in (LARGE, 2**30):
        monkeypatch.setattr(products, "LARGE", large)
        found = encoder(texts, lengths)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)
        for ours, theirs in zip(torch.autograd.grad((found * factors).sum(), weights), gradients, strict=True):
            torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


@needs_operators
@pytest.mark.parametrize(
    "changed",
    [
        lambda right: torch.ops.mkldnn.absent(right),
        lambda right: lambda left: None,
        lambda right: lambda left: LAID_OUT(right)(left).double(),
        lambda right: lambda left: LAID_OUT(right)(left) + (len(left) == 1),  # wrong for one row only
    ],
)
def test_operators_that_a_new_torch_changed_are_not_used(changed, monkeypatch):
    left, right = torch.randn(20, 128), torch.randn(128, 128)
    monkeypatch.setattr(products, "_laid_out", changed)
    lays_out.cache_clear()
    try:
        assert torch.equal(fixed_product(right, torch.float32)(left), left @ right)
    finally:
        lays_out.cache_clear()
