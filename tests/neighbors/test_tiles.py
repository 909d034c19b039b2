import torch
from looped import looped

from vsehub.neighbors import tiles
from vsehub.neighbors.vectors import Affine, as_vectors


@looped("scale", [1.0, 0.75, 0.0, -2.0])
@looped("dtype", [torch.float32, torch.float64])
@looped("rows", [1, 17])
def test_corrections_of_one_pass_are_those_of_the_whole_matrix(scale, dtype, rows, monkeypatch):
    """In tiles of both sides: an item bias, terms of queries and items, and the plain scores; ties come in order."""
    for name, size in (("TILE_ITEMS", 64), ("TILE_QUERIES", 5), ("QUERIES_AT_ONCE", 12)):
        monkeypatch.setattr(tiles, name, size)
    generator = torch.Generator().manual_seed(0)
    queries, items, bias, offsets = (
        torch.randint(-3, 4, size, generator=generator).to(dtype) for size in ((rows, 3), (80, 3), (80,), (rows, 1))
    )
    items, bias = items.repeat(2, 1), bias.repeat(2)
    corrections = [Affine(scale, bias), lambda scores, rows, columns: offsets[rows] * scores - bias[columns], None]
    lists = tiles.nearest(as_vectors("queries", queries), as_vectors("items", items), 9, corrections)
    scores = queries @ items.T
    for (values, positions), wanted in zip(
        lists, (scale * scores - bias, offsets * scores - bias, scores), strict=True
    ):
        best, order = wanted.sort(dim=1, descending=True, stable=True)
        torch.testing.assert_close((values, positions), (best[:, :9], order[:, :9]), rtol=0, atol=0)


@looped(("reference", "items"), [(3, 40), (40, 3), (1, 1), (100, 50)])
def test_columns_of_scores(reference, items, monkeypatch):
    """In blocks of which each overwrites the last."""
    monkeypatch.setattr(tiles, "COLUMN_ELEMENTS", 100)
    references, among = (torch.arange(5.0 * rows).view(rows, 5) % 7 for rows in (reference, items))
    blocks = tiles.ScoreColumns(as_vectors("reference", references), as_vectors("items", among))()
    assert torch.equal(torch.cat([block.clone() for block in blocks], dim=1), references @ among.T)
