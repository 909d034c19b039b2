import pytest
import torch
from looped import looped

from vsehub.metrics.ranks import Positives, rank_blocks
from vsehub.neighbors import top_k, top_k_of_blocks

# rows, width, k, distinct values (0: any): narrow rows are searched whole, wide ones by groups of columns
CASES = [
    (7, 3000, 10, 5),
    (7, 3000, 10, 200),
    (40, 3011, 10, 0),
    (5, 9000, 11, 3000),
    (3, 50, 10, 4),
    (3, 10, 10, 4),
    (3, 5, 10, 3),
    (9, 4000, 1, 10),
    (1, 1, 1, 2),
]


@looped(("rows", "width", "k", "distinct"), CASES)
@looped("layout", [lambda s: s, lambda s: s.double(), lambda s: s.T.contiguous().T])
def test_top_k_is_a_stable_sort_cut_off(rows, width, k, distinct, layout):
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(rows, width, generator=generator)
    if distinct:
        scores = torch.randint(distinct, (rows, width), generator=generator).float() - distinct // 2
    scores = layout(scores)
    values, columns = top_k(scores, k)
    expected = scores.argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(columns, expected)
    assert torch.equal(values, scores.gather(1, expected))


@pytest.mark.parametrize("width", [50, 5000])
@pytest.mark.parametrize("place", [0, 49])
def test_a_nan_comes_first_and_minus_infinity_is_a_number(width, place):
    scores = torch.full((2, width), -torch.inf)
    assert torch.equal(top_k(scores, 10)[1], torch.arange(10).expand(2, -1))
    scores[1, place - 1] = torch.nan
    assert top_k(scores, 10)[0][:, 0].isnan().tolist() == [False, True]


@pytest.mark.parametrize("ks", [(), (1, 5)])
def test_ranks_of_rows_cut_into_cached_blocks(ks, monkeypatch):
    monkeypatch.setattr("vsehub.metrics.ranks.CACHED_ELEMENTS", 100)
    scores = torch.randint(6, (23, 40), generator=torch.Generator().manual_seed(1)).float()
    mask = torch.rand(23, 40, generator=torch.Generator().manual_seed(2)) < 0.1
    mask[:, 3] = True
    ranking = rank_blocks([(0, scores[:9]), (9, scores[9:])], Positives.from_mask(mask), ks)
    for row, positive, rank in zip(scores, mask, ranking.ranks, strict=True):
        assert rank == (row[~positive] >= row[positive].max()).sum() + 1
    assert all(int(counts.sum()) == 23 * k for k, counts in ranking.occurrences.items())


WIDTHS = [(2048, 2048, 100, 7), (5, 0, 1500, 64), (1000, 1, 31, 33), (40, 40, 40)]


def kind_of_scores(rows, width, kind):
    generator = torch.Generator().manual_seed(0)
    drawn = torch.randn(rows, width, generator=generator)
    return {
        "distinct": drawn,
        "few": drawn.mul(2).round(),  # the k-th value ties across all blocks
        "constant": torch.zeros(rows, width),
        "rising": drawn.sort(dim=1).values,  # every column enters
        "falling": drawn.sort(dim=1, descending=True).values,  # none does after the first block
        "one row rises": torch.cat((drawn[:1].sort(dim=1).values, drawn[1:])),
        "minus infinity": drawn.masked_fill(drawn < 1.5, -torch.inf),
        "infinite row": torch.cat((torch.full((1, width), -torch.inf), drawn[1:])),
    }[kind]


@looped("widths", WIDTHS)
@looped("k", [1, 100])
@looped("kind", ["distinct", "few", "constant", "rising", "falling", "one row rises", "minus infinity", "infinite row"])
@looped("layout", [lambda s: s, lambda s: s.T.contiguous().T])
def test_blocks_side_by_side_are_a_stable_sort_cut_off(widths, k, kind, layout):
    whole = layout(kind_of_scores(9, sum(widths), kind))
    values, columns = top_k_of_blocks(whole.split(widths, dim=1), k)
    expected = whole.argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(columns, expected)
    assert torch.equal(values, whole.gather(1, expected))


def test_a_nan_of_any_block_comes_first():
    for column in (0, 5000, 8191):
        whole = kind_of_scores(3, 8192, "distinct")
        whole[1, column] = torch.nan
        columns = top_k_of_blocks(whole.split(4096, dim=1), 10)[1]
        assert columns[1, 0] == column
        assert torch.equal(columns[0], whole[0].topk(10).indices)
