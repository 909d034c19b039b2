import pytest
import torch

from vsehub.encoders.fast.sort import WeightedByPlace, places


@pytest.mark.parametrize("block", [1, 50, 2**17])
def test_places_are_those_of_a_stable_sort(monkeypatch, block):
    monkeypatch.setattr("vsehub.encoders.fast.sort._BLOCK", block)
    states = torch.randn(7, 11, 5, generator=torch.Generator().manual_seed(0))
    states[1] = states[1].round()  # ties, of 0.0 and -0.0 too
    states[2, 3:] = -torch.inf
    states[3] = states[3].abs().mul(1e38) * 10  # infinities and large values
    states[4] = states[4] * 1e-42  # below the smallest normal number
    states[5] = 2.5
    states[6, ::2] = -0.0
    for dtype in (torch.float32, torch.float64):
        given = states.to(dtype)
        assert torch.equal(places(given), given.sort(dim=1, descending=True, stable=True).indices)


def sets(dtype=torch.float64):
    """Sets of 1 to 9 vectors with gaps between them, in no order; weights are 0 beyond a set."""
    generator = torch.Generator().manual_seed(1)
    lengths = torch.randint(1, 10, (13,), generator=generator)
    starts = lengths.cumsum(0) - lengths + torch.arange(13)
    order = torch.randperm(13, generator=generator)
    lengths, starts = lengths[order], starts[order]
    vectors = torch.randn(int((starts + lengths).max()), 4, generator=generator, dtype=dtype)
    weights = torch.randn(13, 9, generator=generator, dtype=dtype)
    return vectors, starts, lengths, weights * (torch.arange(9) < lengths[:, None])


@pytest.mark.parametrize("together", [1, 5, 32])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_weighted_by_place_equals_loops(monkeypatch, together, dtype):
    monkeypatch.setattr("vsehub.encoders.fast.sort._TOGETHER", together)
    vectors, starts, lengths, weights = sets(dtype)
    found = WeightedByPlace.apply(vectors, starts, lengths, weights)
    for n, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        for d in range(vectors.shape[1]):
            values = sorted(vectors[start : start + length, d].tolist(), reverse=True)
            expected = sum(weight * value for weight, value in zip(weights[n].tolist(), values, strict=False))
            assert found[n, d].item() == pytest.approx(
                expected, rel=1e-5 if dtype == torch.float32 else 1e-12, abs=1e-6
            )


def test_weighted_by_place_has_the_gradients_of_finite_differences(monkeypatch):
    monkeypatch.setattr("vsehub.encoders.fast.sort._TOGETHER", 4)
    vectors, starts, lengths, weights = sets()
    inside = torch.arange(9) < lengths[:, None]

    def pooled(vectors, weights):
        return WeightedByPlace.apply(vectors, starts, lengths, weights * inside)

    assert torch.autograd.gradcheck(pooled, (vectors.requires_grad_(), weights.requires_grad_()))
