import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vsehub.metrics import at_r, rank_blocks
from vsehub.positives import Positives


def naive(hits, count):
    """AP@R and R-Precision by the letter, of one ranking's places (True: a positive) and R."""
    shares = [sum(hits[: i + 1]) / (i + 1) for i in range(count) if hits[i]]
    return sum(shares) / count, sum(hits[:count]) / count


def naive_of_scores(row, mask):
    """Negatives first among equals."""
    order = sorted(range(len(row)), key=lambda item: (-row[item], mask[item]))
    return naive([mask[item] for item in order], sum(mask))


@st.composite
def retrievals(draw):
    """Few distinct scores; none to all items positive; where asked some queries without a positive."""
    queries, items = draw(st.integers(1, 9)), draw(st.integers(1, 14))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.integers(-draw(st.integers(0, 5)), 2, size=(queries, items)).astype(np.float32)
    if draw(st.booleans()):
        scores[scores < -1] = -np.inf
    mask = rng.random((queries, items)) < rng.choice([0.0, 0.15, 0.5, 1.0], size=(queries, 1))
    if draw(st.booleans()):
        mask[np.arange(queries), rng.integers(items, size=queries)] = True
    mask[rng.integers(queries), rng.integers(items)] = True
    return torch.from_numpy(scores), torch.from_numpy(mask)


def pairs(mask):
    return Positives.from_pairs(*mask.nonzero(as_tuple=True), *mask.shape, complete=False)


def check(ranking, scores, mask):
    for at, (row, hits) in enumerate(zip(scores.tolist(), mask.tolist(), strict=True)):
        assert ranking.measured[at] == any(hits)
        if any(hits):
            expected = naive_of_scores(row, hits)
            assert ranking.average_precision[at].item() == pytest.approx(expected[0])
            assert ranking.r_precision[at].item() == pytest.approx(expected[1])
            best = max(score for score, hit in zip(row, hits, strict=True) if hit)
            assert ranking.ranks[at] == 1 + sum(s >= best and not h for s, h in zip(row, hits, strict=True))
        else:
            assert (ranking.ranks[at], ranking.average_precision[at], ranking.r_precision[at]) == (0, 0, 0)


@settings(max_examples=40, deadline=None)
@given(retrievals(), st.sampled_from([(), (1,), (2, 4), (1, 5, 10)]), st.integers(1, 9))
def test_rankings_by_scores(retrieval, ks, size):
    scores, mask = retrieval
    blocks = [(first, scores[first : first + size]) for first in range(0, len(scores), size)]
    check(rank_blocks(blocks, pairs(mask), ks), scores, mask)


@pytest.mark.parametrize("distinct", [1, 4, 60, 10**6])
def test_wide_rows_with_one_to_all_items_positive(distinct):
    """Rows of many positives, longer than the lists of the others, and ties across every cut."""
    generator = torch.Generator().manual_seed(0)
    scores = torch.randint(distinct, (9, 2500), generator=generator).float()
    shares = torch.tensor([0.0, 0.0, 0.001, 0.003, 0.004, 0.02, 0.3, 0.9, 1.0])[:, None]
    mask = torch.rand(9, 2500, generator=generator) < shares
    mask[1, 7] = True
    check(rank_blocks([(0, scores)], pairs(mask), (1, 5, 10)), scores, mask)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):  # values that meet in half precision are ties
        check(rank_blocks([(0, scores.to(dtype))], pairs(mask), (10,)), scores.to(dtype).float(), mask)


@settings(max_examples=40, deadline=None)
@given(retrievals(), st.integers(0, 20), st.integers(0, 2**32 - 1))
def test_lists(retrieval, depth, seed):
    mask = retrieval[1]
    queries, items = mask.shape
    depth = min(items, max(depth, int(mask.sum(dim=1).max())))
    rng = np.random.default_rng(seed)
    lists = torch.from_numpy(np.stack([rng.permutation(items)[:depth] for _ in range(queries)]))
    fractions_of_all = torch.stack(at_r(pairs(mask).hits(lists.int()), mask.sum(dim=1))).T.tolist()
    for order, row, fractions in zip(lists.tolist(), mask.tolist(), fractions_of_all, strict=True):
        places = [row[item] for item in order]
        assert fractions == pytest.approx(naive(places, sum(row)) if any(row) else (0, 0))
