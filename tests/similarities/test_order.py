import pytest
import torch
from golden_arrays import CASES, golden

from vsehub.checks import InputError
from vsehub.similarities import Order, order


def by_loops(images, texts):
    unit = [[torch.nn.functional.normalize(row, dim=0).abs() for row in side] for side in (images, texts)]
    return torch.stack([torch.stack([-(t - i).clamp(min=0).square().sum().sqrt() for t in unit[1]]) for i in unit[0]])


def sides(images=5, texts=7, dim=6):
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(n, dim, generator=generator, dtype=torch.float64) for n in (images, texts)]


@pytest.mark.parametrize("case", CASES)
def test_golden(case):
    arrays = golden(case)
    images, texts = arrays["image"], arrays["caption"]
    torch.testing.assert_close(Order(shift=0.0)(images, texts), arrays["order_sim"], rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(Order()(images, texts), 1 + arrays["order_sim"], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("tile", [1, 30, 10**6])
def test_tiles_equal_loops(monkeypatch, tile):
    monkeypatch.setattr(order, "TILE_ON_CPU", tile)
    images, texts = (side.requires_grad_() for side in sides())
    upstream = torch.randn(5, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    expected, scores = by_loops(images, texts), Order(shift=0.0)(images, texts)
    torch.testing.assert_close(scores, expected, rtol=1e-12, atol=1e-14)
    for ours, theirs in zip(
        torch.autograd.grad(scores, (images, texts), upstream),
        torch.autograd.grad(expected, (images, texts), upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    assert torch.autograd.gradcheck(Order(), (images, texts))


def test_distance_zero_has_gradient_zero():
    """A text that is its image, and one that lies below it in every dimension but one it lacks."""
    images = torch.tensor([[0.6, 0.8], [1.0, 0.0]], requires_grad=True)
    texts = torch.tensor([[-0.6, 0.8]], requires_grad=True)
    scores = Order()(images, texts)
    assert scores[0, 0] == Order().largest == 1.0
    gradients = torch.autograd.grad(scores[0, 0], (images, texts))
    assert all((gradient == 0).all() for gradient in gradients)


def test_training_holds_no_differences_of_all_pairs(monkeypatch):
    """What autograd keeps is three matrices, of (I, D), (T, D) and (I, T)."""
    images, texts = (side.requires_grad_() for side in sides(40, 50))
    saved = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.numel()) or tensor, lambda tensor: tensor
    ):
        Order()(images, texts)
    assert max(saved) == 40 * 50


def test_bad_input():
    images, texts = sides()
    with pytest.raises(InputError, match="texts has shape"):
        Order()(images, texts[:, :3])
    with pytest.raises(InputError, match="images has shape"):
        Order()(images[0], texts)
    assert Order()(images[:0], texts).shape == (0, 7)
    assert Order()(images, texts[:0]).shape == (len(images), 0)
