import pytest
import torch

from vsehub.neighbors import corrections, tiles
from vsehub.neighbors.corrections import Affine, Scratch, corrected
from vsehub.neighbors.rows import as_rows


@pytest.mark.parametrize("scale", [1.0, 2.0, 0.5, 30.0, 0.75])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_item_bias_gives_the_formulas_numbers(scale, dtype, monkeypatch):
    """Bit for bit, ties included: the same search with the formula written out."""
    monkeypatch.setattr(tiles, "TILE_ITEMS", 64)
    monkeypatch.setattr(tiles, "TILE_QUERIES", 5)
    generator = torch.Generator().manual_seed(0)
    queries = as_rows("queries", torch.randn(17, 3, generator=generator, dtype=dtype))
    items = as_rows("items", torch.randn(80, 3, generator=generator, dtype=dtype).round(decimals=1).repeat(2, 1))
    bias = torch.randn(80, generator=generator, dtype=dtype).repeat(2)
    spelled, folded = tiles.nearest(
        queries, items, 9, [lambda scores, _, columns: scale * scores - bias[columns], Affine(scale, bias)]
    )
    assert torch.equal(spelled[0], folded[0])
    assert torch.equal(spelled[1], folded[1])


@pytest.mark.parametrize("rows", [1, 7, 8])
def test_strips_are_the_whole(rows, monkeypatch):
    monkeypatch.setattr(corrections, "STRIP_ELEMENTS", 30)
    scores, own, terms = torch.randn(rows, 13), torch.randn(20, 1), torch.randn(40)
    rule = lambda scores, rows, columns: scores.double() * own[rows] - terms[columns]  # noqa: E731
    place = slice(5, 5 + rows), slice(11, 24)
    scratch = Scratch()
    assert torch.equal(corrected(rule, scores, *place, scratch), rule(scores, *place))
    assert corrected(rule, scores, *place, scratch).dtype == torch.float64


def test_scratch_is_one_memory_for_each_type():
    scratch = Scratch()
    place = torch.device("cpu")
    large, small = scratch.matrix(4, 5, torch.float32, place), scratch.matrix(2, 3, torch.float32, place)
    assert small.data_ptr() == large.data_ptr()
    assert small.is_contiguous()
    assert scratch.matrix(2, 3, torch.float64, place).data_ptr() != large.data_ptr()
    assert scratch.matrix(40, 5, torch.float32, place).shape == (40, 5)
