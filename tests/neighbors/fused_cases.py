"""The kernel of log-sums in Triton's interpreter, which is chosen for a whole process; run by test_fused.py."""

import math

import pytest
import torch
from looped import looped
from torch.nn.functional import normalize

from experiments.benchmarks import common
from experiments.benchmarks.gpu_equality import sinkhorn_rows
from vsehub.criteria import DualBankSinkhorn, Sinkhorn
from vsehub.criteria.base import fit_all
from vsehub.neighbors import fused, tiles
from vsehub.neighbors.tiles import ScoreColumns
from vsehub.neighbors.vectors import as_vectors

CPU = torch.device("cpu")


def vectors(rows, dim, seed, norm=1.0):
    random = torch.Generator().manual_seed(seed)
    return norm * normalize(torch.randn(rows, dim, generator=random) + 0.2, dim=1)


def wanted(first, second, scale, bias=None):
    logits = scale * (first.double() @ second.double().T)
    return (logits if bias is None else logits + bias.double()).logsumexp(dim=1)


@looped(
    ("rows", "columns", "dim", "biased"),
    [
        *((1, 1, dim, biased) for dim in (1, 7, 32, 65) for biased in (False, True)),
        *((1, 300, 7, True), (300, 1, 1, False), (127, 129, 65, True), (128, 128, 32, False)),
        *((5, 2500, 7, True), (260, 130, 33, False)),
    ],
)
def test_log_sums(rows, columns, dim, biased):
    first, second = vectors(rows, dim, 1), vectors(columns, dim, 2)
    bias = 10 * torch.randn(columns, generator=torch.Generator().manual_seed(3)) if biased else None
    found = fused.log_sums(first, second, 50.0, bias)
    assert (found.dtype, found.shape) == (torch.float32, (rows,))
    torch.testing.assert_close(found.double(), wanted(first, second, 50.0, bias), rtol=1e-6, atol=2e-5)


@looped("scale", [1e-3, 200.0, 1e6, 1e30])
def test_large_and_small_logits(scale):
    """Without overflow; the error is that of float32 logits."""
    first, second = vectors(20, 24, 1), vectors(1200, 24, 2, norm=30.0)
    found = fused.log_sums(first, second, scale)
    torch.testing.assert_close(found.double(), wanted(first, second, scale), rtol=2e-6, atol=2e-5)


def test_equal_scores():
    first, second = torch.zeros(3, 9), vectors(1500, 9, 1)
    torch.testing.assert_close(fused.log_sums(first, second, 100.0), torch.full((3,), math.log(1500)))
    bias = torch.full((1500,), -1e6)
    torch.testing.assert_close(fused.log_sums(first, second, 100.0, bias), torch.full((3,), -1e6 + math.log(1500)))


def test_a_bias_with_a_large_range():
    """Parts and tiles whose largest is far below, or above, that of others."""
    first, second = vectors(4, 16, 1), vectors(2600, 16, 2)
    for bias in (
        torch.linspace(-1e5, 1e5, 2600),
        torch.linspace(1e5, -1e5, 2600),
        torch.zeros(2600).index_fill(0, torch.tensor([1300]), 3e4),
    ):
        found = fused.log_sums(first, second, 50.0, bias)
        torch.testing.assert_close(found.double(), wanted(first, second, 50.0, bias), rtol=1e-6, atol=1e-5)


def test_minus_infinity_is_no_nan_and_nan_is_not_hidden():
    first, second = vectors(4, 16, 1), vectors(2600, 16, 2)
    bias = torch.full((2600,), -torch.inf)
    assert torch.equal(fused.log_sums(first, second, 50.0, bias), torch.full((4,), -torch.inf))
    bias[2000] = 0.0
    torch.testing.assert_close(fused.log_sums(first, second, 50.0, bias), 50.0 * first @ second[2000])
    for bad in (torch.nan, torch.inf):
        spoilt = first.clone()
        spoilt[1, 3] = bad
        found = fused.log_sums(spoilt, second, 50.0)
        assert found.isfinite().tolist() == [True, False, True, True]


def test_a_row_does_not_depend_on_the_rows_beside_it(monkeypatch):
    monkeypatch.setattr(fused, "LEAST_SPAN", 1)
    monkeypatch.setattr(fused, "MOST_PARTS", 4)
    first, second = vectors(300, 20, 1), vectors(3000, 20, 2)
    whole = fused.log_sums(first, second, 80.0)
    assert torch.equal(fused.log_sums(first[170:171], second, 80.0), whole[170:171])


def test_views():
    first, second = vectors(20, 14, 1), vectors(90, 14, 2)
    found = fused.log_sums(first[::2, ::2], second[::3, 1::2], 9.0)
    torch.testing.assert_close(found.double(), wanted(first[::2, ::2], second[::3, 1::2], 9.0), rtol=1e-6, atol=1e-5)


@looped(
    ("queries", "items", "bank", "rounds"),
    [(40, 300, None, 4), (150, 30, None, 3), (40, 150, 140, 3), (1, 1, None, 1)],
)
def test_a_whole_fit(queries, items, bank, rounds, monkeypatch):
    sides = as_vectors("items", vectors(items, 20, 1)), as_vectors("reference", vectors(queries, 20, 2))
    further = None if bank is None else as_vectors("bank", vectors(bank, 20, 3))
    criterion = (Sinkhorn if bank is None else DualBankSinkhorn)(rounds=rounds)
    plain = fit_all([criterion], *sides, further)[0][0]
    monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 20 * 128)  # several blocks of items
    monkeypatch.setattr(ScoreColumns, "float32_on_cuda", True)
    monkeypatch.setattr(ScoreColumns, "__call__", lambda self: pytest.fail("scores are written"))
    found = fit_all([criterion], *sides, further)[0][0]
    assert (found.dtype, found.shape) == (plain.dtype, plain.shape)
    assert criterion.temperature * (found - plain).abs().max() < 2e-6


def test_the_gpu_checks_rows(monkeypatch):
    monkeypatch.setattr(ScoreColumns, "float32_on_cuda", True)
    monkeypatch.setattr(common, "interleave", lambda ways, rounds, device: {name: [0.0] for name in ways})
    rows = sinkhorn_rows(CPU, 20, 130, 16, 3)
    assert [holds for *_, holds in rows] == [True, True]


def test_the_probe(monkeypatch):
    fused.works_on.cache_clear()
    assert fused.works_on(CPU)
    known = fused.log_sums

    def rounded(first, *rest):
        """As with factors rounded to TF32, which have 10 bits after the first."""
        return known((first * 2**13 + first) - first * 2**13, *rest)

    def fails(*_):
        raise RuntimeError("no compiler")

    for bad in (rounded, fails, lambda first, *_: first.new_full((len(first),), torch.nan)):
        fused.works_on.cache_clear()
        monkeypatch.setattr(fused, "log_sums", bad)
        assert not fused.works_on(CPU)
    fused.works_on.cache_clear()
