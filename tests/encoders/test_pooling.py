import math

import pytest
import torch

from vsehub.encoders import pooling
from vsehub.encoders.pooling import GPO, pooling_of

LENGTHS = torch.tensor([3, 1, 5, 3, 2])


def states(seed=0, dtype=torch.float64):
    return torch.randn(len(LENGTHS), 6, 4, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def gpo(*sizes):
    torch.manual_seed(0)
    return GPO(*sizes).double()


def gpo_by_loops(pool, rows):
    """One set's GPO: places, their encodings, GRU, softmax, sorted values."""
    dim = pool.position_dim
    places = [
        [(math.cos if i % 2 else math.sin)(place * 10000 ** (-2 * (i // 2) / dim)) for i in range(dim)]
        for place in range(len(rows))
    ]
    states = pool.gru(torch.tensor([places], dtype=torch.float64))[0][0].unflatten(1, (2, -1)).mean(dim=1).tolist()
    weight = pool.linear.weight[0].tolist()
    powers = [math.exp(sum(w * value for w, value in zip(weight, state, strict=True)) / 0.1) for state in states]
    columns = [sorted(column, reverse=True) for column in zip(*rows, strict=True)]
    return [sum(p / sum(powers) * v for p, v in zip(powers, column, strict=True)) for column in columns]


def by_loops(name, pool, rows):
    if name == "gpo":
        return gpo_by_loops(pool, rows)
    if name == "last":
        return rows[-1]
    return [max(column) if name == "max" else math.fsum(column) / len(column) for column in zip(*rows, strict=True)]


@pytest.mark.parametrize(
    ("name", "way"),
    [("last", ""), ("mean", ""), ("max", ""), ("gpo", "all pairs compared"), ("gpo", "sorted"), ("gpo", "gpu")],
)
def test_equals_loops_and_what_pads_is_nothing(name, way, monkeypatch):
    if way == "sorted":  # as sets larger than these are
        monkeypatch.setattr(pooling, "COMPARED_SIZE", 0)
    if way == "gpu":  # the way of a GPU, which has no distinct lengths before all is computed
        monkeypatch.setattr(torch.Tensor, "is_cpu", False)
        monkeypatch.delattr(torch.Tensor, "unique")
    pool, sequences = gpo() if name == "gpo" else pooling_of(name), states()
    sequences[2, 1] = sequences[2, 3]  # ties, of 0.0 and -0.0 too
    sequences[3, :2] = torch.tensor([[0.0], [-0.0]])
    expected = [by_loops(name, pool, rows[:n].tolist()) for rows, n in zip(sequences, LENGTHS, strict=True)]
    for garbage in (0.0, 1e9, math.inf, -math.inf, math.nan):
        padded = sequences.clone()
        padded[torch.arange(6) >= LENGTHS[:, None]] = garbage
        padded.requires_grad_()
        vectors = pool(padded, LENGTHS)
        torch.testing.assert_close(vectors, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-12)
        (gradient,) = torch.autograd.grad(vectors.square().sum(), padded)
        assert torch.isfinite(gradient).all()
        assert (gradient[torch.arange(6) >= LENGTHS[:, None]] == 0).all()


def test_gpo_gradients_are_those_of_finite_differences():
    pool = gpo(4, 3)
    names = [name for name, _ in pool.named_parameters()]

    def run(padded, *parameters):
        return torch.func.functional_call(pool, dict(zip(names, parameters, strict=True)), (padded, LENGTHS))

    padded = states(1).requires_grad_()
    weights = [parameter.detach().requires_grad_() for parameter in pool.parameters()]
    assert torch.autograd.gradcheck(run, (padded, *weights), fast_mode=True)
