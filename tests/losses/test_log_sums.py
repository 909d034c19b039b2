import torch

from vsehub.losses.base import log_sums


def inputs(rows=7, columns=5, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    excluded = torch.rand(rows, columns, generator=generator) < 0.3
    weights = torch.rand(rows, columns, generator=generator, dtype=torch.float64)
    return values, excluded, weights


def plainly(values, excluded, scale=1.0, shift=0.0, weights=None):
    exponents = scale * (1 if weights is None else weights) * (values - shift)
    exponents = exponents.masked_fill(excluded, -torch.inf)
    return exponents.logsumexp(dim=1), exponents.logsumexp(dim=0)


def test_equals_logsumexp_with_its_gradient():
    values, excluded, weights = inputs()
    for settings in ({}, {"scale": 60.0, "shift": 0.7}, {"scale": 1000.0, "shift": -3.0, "weights": weights}):
        answers = []
        for way in (log_sums, plainly):
            leaf = values.clone().requires_grad_()
            rows, columns = way(leaf, excluded, **settings)
            (rows.square().sum() + columns.sin().sum()).backward()
            answers.append((rows, columns, leaf.grad))
        for ours, expected in zip(*answers, strict=True):
            torch.testing.assert_close(ours, expected, rtol=1e-12, atol=1e-12)


def test_a_row_without_entries_is_finite_and_has_no_gradient():
    values, excluded, _ = inputs()
    excluded[2] = True
    excluded[:, 1] = True
    values.requires_grad_()
    rows, columns = log_sums(values, excluded, 5.0)
    assert torch.isfinite(rows).all()
    assert torch.isfinite(columns).all()
    assert rows[2] < -1e300
    assert columns[1] < -1e300
    (rows.sum() + columns.sum()).backward()
    assert (values.grad[2] == 0).all()
    assert (values.grad[:, 1] == 0).all()
    assert (values.grad[~excluded] != 0).all()


def test_single_precision_stays_finite_where_exponentials_would_not():
    values, excluded, _ = inputs()
    rows, columns = log_sums(values.float(), excluded, 1000.0)
    for sums, expected in zip((rows, columns), plainly(values, excluded, 1000.0), strict=True):
        torch.testing.assert_close(sums.double(), expected, rtol=1e-6, atol=1e-3)
