import pytest
import torch

from vsehub.checks import InputError
from vsehub.sets import Sets, concatenated

LENGTHS = [1, 4, 2, 3, 1]


@pytest.fixture
def rows():
    return torch.randn(5, 4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def listed(sets):
    return [part.tolist() for part in sets.vectors.split(sets.lengths.tolist())]


def test_padding_is_left_out_and_comes_back(rows):
    sets = Sets.from_padded(rows, torch.tensor(LENGTHS))
    assert listed(sets) == [rows[n, :length].tolist() for n, length in enumerate(LENGTHS)]
    padded, inside = sets.padded()
    assert inside.sum(dim=1).tolist() == LENGTHS
    torch.testing.assert_close(padded, rows * inside[:, :, None], rtol=0, atol=0)


@pytest.mark.parametrize(
    "index",
    [slice(None), slice(1, 3), slice(3, 3), slice(4, None), slice(None, None, 2), [3, 0, 3], []],
    ids=str,
)
def test_indexing_is_that_of_a_list(rows, index):
    sets = Sets.from_padded(rows, torch.tensor(LENGTHS))
    whole = listed(sets)
    wanted = whole[index] if isinstance(index, slice) else [whole[n] for n in index]
    part = sets[index if isinstance(index, slice) else torch.tensor(index, dtype=torch.int64)]
    assert len(part) == len(wanted)
    assert listed(part) == wanted


def test_concatenation_means_and_gradients(rows):
    rows.requires_grad_()
    sets = Sets.from_padded(rows, torch.tensor(LENGTHS))
    both = concatenated([sets[3:], sets[torch.tensor([1])]])
    assert listed(both) == [listed(sets)[n] for n in (3, 4, 1)]
    expected = torch.stack([rows[n, : LENGTHS[n]].mean(dim=0) for n in (3, 4, 1)])
    torch.testing.assert_close(both.means(), expected)
    both.means().sum().backward()
    assert rows.grad.abs().sum(dim=(1, 2)).ne(0).tolist() == [False, True, False, True, True]
    assert (rows.grad[1].sum(dim=0) - 1).abs().max() < 1e-12


def test_refusals(rows):
    with pytest.raises(InputError, match="padded"):
        Sets.from_padded(rows[0], torch.tensor(LENGTHS))
    with pytest.raises(InputError, match="tensors and Sets"):
        concatenated([Sets(torch.ones(3, 2), torch.tensor([1, 2])), torch.ones(2, 2)])
