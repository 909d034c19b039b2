import pytest
import torch

from vsehub.encoders.fast.sort import descending, places


@pytest.mark.parametrize("block", [1, 50, 2**17])
def test_sorts_as_torch_does_stably(monkeypatch, block):
    monkeypatch.setattr("vsehub.encoders.fast.sort._BLOCK", block)
    states = torch.randn(7, 11, 5, generator=torch.Generator().manual_seed(0))
    states[1] = states[1].round()  # ties, of 0.0 and -0.0 too
    states[2, 3:] = -torch.inf
    states[3] = states[3].abs().mul(1e38) * 10  # infinities and large values
    states[4] = states[4] * 1e-42  # below the smallest normal number
    states[5] = 2.5
    states[6, ::2] = -0.0
    expected = states.sort(dim=1, descending=True, stable=True)
    assert torch.equal(places(states), expected.indices)
    assert torch.equal(descending(states), expected.values)


def test_gradient_goes_back_to_each_value():
    states = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(1)).requires_grad_()
    weight = torch.randn(3, 6, 4, generator=torch.Generator().manual_seed(2))
    found = [torch.autograd.grad((way(states) * weight).sum(), states)[0] for way in (descending, by_torch)]
    assert torch.equal(*found)
    assert descending(states[:, :1]).shape == (3, 1, 4)
    assert descending(states[:0]).shape == (0, 6, 4)


def by_torch(states):
    return states.sort(dim=1, descending=True).values
