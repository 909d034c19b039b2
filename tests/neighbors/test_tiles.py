import torch
from looped import looped

from vsehub.neighbors import tiles
from vsehub.neighbors.screened import Affine
from vsehub.neighbors.vectors import as_vectors


@looped("scale", [1.0, 2.0, 0.5, 30.0, 0.75])
@looped("dtype", [torch.float32, torch.float64])
def test_an_item_bias_gives_the_formulas_numbers(scale, dtype, monkeypatch):
    """The same search with the formula written out: bit for bit in float64, ties included."""
    monkeypatch.setattr(tiles, "TILE_ITEMS", 64)
    monkeypatch.setattr(tiles, "TILE_QUERIES", 5)
    generator = torch.Generator().manual_seed(0)
    queries = as_vectors("queries", torch.randn(17, 3, generator=generator, dtype=dtype))
    close = {"rtol": 0, "atol": 0} if dtype == torch.float64 else {}
    items = as_vectors("items", torch.randn(80, 3, generator=generator, dtype=dtype).round(decimals=1).repeat(2, 1))
    bias = torch.randn(80, generator=generator, dtype=dtype).repeat(2)
    spelled, folded = tiles.nearest(
        queries, items, 9, [lambda scores, _, columns: scale * scores - bias[columns], Affine(scale, bias)]
    )
    torch.testing.assert_close(spelled[0], folded[0], **close)
    if dtype == torch.float64:
        assert torch.equal(spelled[1], folded[1])
