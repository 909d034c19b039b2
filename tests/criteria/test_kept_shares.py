"""Sinkhorn normalisation by rounds on the large shares equals that by rounds on all scores, or gives way to it."""

import torch
from looped import looped
from torch.nn.functional import normalize

from vsehub.criteria import DualBankSinkhorn, Sinkhorn, kept_shares, sinkhorn
from vsehub.criteria.base import fit_all
from vsehub.neighbors import tiles
from vsehub.neighbors.vectors import as_vectors


def unit(rows, seed, dim=16):
    """Vectors around a common offset, some of them copies."""
    found = torch.randn(rows, dim, generator=torch.Generator().manual_seed(seed)) + 0.5
    found[: rows // 10] = found[rows // 10 : 2 * (rows // 10)]
    return as_vectors("vectors", normalize(found, dim=1))


def bias(criterion, sides, many, monkeypatch, bank=None):
    monkeypatch.setattr(sinkhorn, "MANY", many)
    return fit_all([criterion], *sides, bank)[0][0]


def settle(monkeypatch):
    """Small blocks, of whose items a quarter is the sample, and room for all shares that count."""
    monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 40 * 100)
    monkeypatch.setattr(sinkhorn, "SAMPLE", 0.25)
    monkeypatch.setattr(sinkhorn, "CACHED", 1000)
    monkeypatch.setattr(kept_shares, "WORTH", 1)


@looped("temperature", [0.02, 0.05])
@looped(("queries", "items", "bank"), [(40, 700, None), (20, 300, None), (40, 300, 200), (3, 400, None)])
def test_equals_rounds_on_all_scores(temperature, queries, items, bank, monkeypatch):
    settle(monkeypatch)
    sides = unit(items, 1), unit(queries, 2)
    criterion = Sinkhorn(temperature) if bank is None else DualBankSinkhorn(temperature)
    further = None if bank is None else unit(bank, 3)
    wanted = bias(criterion, sides, 10**18, monkeypatch, further)
    found = bias(criterion, sides, 0, monkeypatch, further)
    assert not torch.equal(found, wanted), "the case must not give way"
    assert found.dtype == wanted.dtype
    assert temperature * (found - wanted).abs().max() < 2e-4


def test_the_small_shares_count(monkeypatch):
    """With room for few shares the sums of the others keep the result near, from two passes over all scores and ten
    over a quarter, where ten rounds take eleven over all.
    """
    settle(monkeypatch)
    for module, name, value in (
        (kept_shares, "MOST_LEAST", 1.0),
        (kept_shares, "MOST_KEPT", 600),
        (sinkhorn, "MOST_OFF", 1.0),
    ):
        monkeypatch.setattr(module, name, value)
    sides, criterion = (unit(600, 1), unit(50, 2)), Sinkhorn(0.05)
    wanted = bias(criterion, sides, 10**18, monkeypatch)
    passes, blocks = [], tiles.ScoreColumns.blocks
    monkeypatch.setattr(tiles.ScoreColumns, "blocks", lambda own, share=1.0: passes.append(share) or blocks(own, share))
    assert 0.05 * (bias(criterion, sides, 0, monkeypatch) - wanted).square().mean().sqrt() < 0.01
    assert sum(passes) == 2 + 10 * 0.25


@looped(("module", "name", "value"), [(kept_shares, "MOST_KEPT", 10), (sinkhorn, "MOST_OFF", 0.0)])
def test_gives_way_to_rounds_on_all_scores(module, name, value, monkeypatch):
    settle(monkeypatch)
    sides, criterion = (unit(300, 1), unit(40, 2)), Sinkhorn(0.02)
    wanted = bias(criterion, sides, 10**18, monkeypatch)
    assert not torch.equal(bias(criterion, sides, 0, monkeypatch), wanted)
    with monkeypatch.context() as small:
        small.setattr(module, name, value)
        assert torch.equal(bias(criterion, sides, 0, monkeypatch), wanted)
