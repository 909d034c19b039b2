import torch
from looped import looped

from vsehub.metrics.topk import top_k_of_blocks

WIDTHS = [(4096, 4096, 4096), (2048, 2048, 100, 7), (5, 3000, 64), (1000, 1, 31, 33), (40, 40, 40)]


def scores(rows, width, kind):
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
@looped("k", [1, 10, 100])
@looped("kind", ["distinct", "few", "constant", "rising", "falling", "one row rises", "minus infinity", "infinite row"])
@looped("layout", [lambda s: s, lambda s: s.double(), lambda s: s.T.contiguous().T])
def test_blocks_side_by_side_are_a_stable_sort_cut_off(widths, k, kind, layout):
    whole = layout(scores(9, sum(widths), kind))
    values, columns = top_k_of_blocks(whole.split(widths, dim=1), k)
    expected = whole.argsort(dim=1, descending=True, stable=True)[:, :k]
    assert torch.equal(columns, expected)
    assert torch.equal(values, whole.gather(1, expected))


def test_a_nan_comes_first_wherever_it_lies():
    for column in (0, 5000, 8191):
        whole = scores(3, 8192, "distinct")
        whole[1, column] = torch.nan
        columns = top_k_of_blocks(whole.split(4096, dim=1), 10)[1]
        assert columns[1, 0] == column
        assert torch.equal(columns[0], whole[0].topk(10).indices)
