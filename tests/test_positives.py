import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsehub.positives import Positives


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 9), st.integers(1, 9), st.integers(0, 2**32 - 1), st.booleans())
def test_pairs_in_any_order_are_those_of_the_mask(queries, items, seed, complete):
    rng = np.random.default_rng(seed)
    mask = torch.from_numpy(rng.random((queries, items)) < 0.3)
    mask[rng.integers(queries), 0] = True
    if complete:
        mask[:, 0] = True
    pairs = mask.nonzero()
    pairs = pairs[torch.from_numpy(rng.integers(len(pairs), size=3 * len(pairs)))].int()  # some twice, some missing
    pairs = torch.cat((pairs, mask.nonzero().int()))[torch.from_numpy(rng.permutation(4 * int(mask.sum())))]
    made = Positives.from_pairs(*pairs.T, queries, items, complete=complete)
    assert torch.equal(torch.stack((made.query, made.item), dim=1), mask.nonzero())
    assert (made.queries, made.items) == (queries, items)
    assert torch.equal(made.counts, mask.sum(dim=1))
    lists = torch.from_numpy(rng.integers(items, size=(queries, 5)))
    first = int(rng.integers(queries))
    assert torch.equal(made.hits(lists[first:], first), mask.gather(1, lists)[first:])
    assert made.hits(lists[:0], first).shape == (0, 5)
    some = torch.from_numpy(rng.random(queries) < 0.5).nonzero().flatten()
    few = made.of_queries(some)
    assert torch.equal(torch.stack((few.query, few.item), dim=1), mask[some].nonzero())
    assert torch.equal(few.counts, mask[some].sum(dim=1))


def test_a_million_items_a_side():
    """Keys of pairs pass 2^32 without meeting each other."""
    size = 10**6
    made = Positives.from_pairs(torch.tensor([size - 1, 7]), torch.tensor([5, size - 1]), size, size, complete=False)
    assert made.hits(torch.tensor([[4, 5, 6]]), size - 1).tolist() == [[False, True, False]]
    assert made.hits(torch.tensor([[0, size - 1], [0, size - 1]]), 7).tolist() == [[False, True], [False, False]]
    assert made.counts.sum() == 2
