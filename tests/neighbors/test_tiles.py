import torch
from looped import looped

from vsehub.neighbors import tiles
from vsehub.neighbors import tiles as corrections
from vsehub.neighbors.affine import Affine
from vsehub.neighbors.tiles import Corrected, MatrixBuffer
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


@looped("rows", [1, 7, 8])
@looped(
    "last",
    [None, Affine(2.0, torch.arange(90.0)), Affine(3.0, torch.arange(90.0).double()), lambda scores, *_: scores + 1],
)
def test_several_corrections_of_one_tile(rows, last, monkeypatch):
    """In strips, in one memory, then of a smaller tile in the same memory."""
    monkeypatch.setattr(corrections, "STRIP_ELEMENTS", 40)
    own, terms = torch.randn(20, 1), torch.randn(90)
    criteria = [
        lambda scores, rows, columns: scores.double() * own[rows] - terms[columns],
        None,
        Affine(30.0, terms),
        Affine(2.0, terms.double()),
        lambda scores, rows, columns: scores,
        lambda scores, rows, columns: scores > own[rows],
        last,
    ]
    together = Corrected(criteria)
    for height in (rows, max(1, rows - 2)):
        scores = torch.randn(height, 13)
        kept, place = scores.clone(), (slice(5, 5 + height), slice(11, 24))
        for criterion, values in zip(criteria, together.of(scores, *place), strict=True):
            expected = kept if criterion is None else criterion(kept, *place)
            if isinstance(criterion, Affine):
                values = values * criterion.factor
            assert torch.equal(values, expected)
            assert values.dtype == expected.dtype


def test_buffer_is_one_memory():
    buffer, single = MatrixBuffer(), torch.zeros(1)
    large, small = buffer.matrix(4, 5, single), buffer.matrix(2, 3, single)
    assert small.data_ptr() == large.data_ptr()
    assert small.is_contiguous()
    assert buffer.matrix(2, 3, single.double()).dtype == torch.float64
    assert buffer.matrix(40, 5, single).shape == (40, 5)
