import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from looped import looped
from scipy.stats import skew

from vsehub.metrics import atkinson, count_occurrences, gini, hubness, occurrence_metrics, rank_blocks
from vsehub.metrics.occurrences import ItemCounts, histogram
from vsehub.positives import Positives


@st.composite
def listings(draw):
    """Lists of distinct items, a mask of positives, in which some queries may have none, and sizes of blocks."""
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 30))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    depth = draw(st.integers(min(5, items), items))
    lists = np.stack([rng.permutation(items)[:depth] for _ in range(queries)])
    mask = rng.random((queries, items)) < draw(st.sampled_from([0.1, 0.6]))
    mask[rng.integers(queries), rng.integers(items)] = True
    return torch.from_numpy(lists), torch.from_numpy(mask), draw(st.integers(1, 12))


def naive_counts(lists, mask, k):
    """N_k and BN_k by loops; queries without a positive are judged by nothing."""
    counts, bad = [0] * mask.shape[1], [0] * mask.shape[1]
    for row, hits in zip(lists.tolist(), mask.tolist(), strict=True):
        for item in row[:k]:
            counts[item] += 1
            bad[item] += any(hits) and not hits[item]
    return counts, bad


def naive_gini(counts):
    return sum(abs(a - b) for a in counts for b in counts) / (2 * len(counts) * sum(counts))


def naive_atkinson(counts):
    return 1 - (sum(n**0.5 for n in counts) / len(counts)) ** 2 / (sum(counts) / len(counts))


@settings(max_examples=30, deadline=None)
@given(listings())
def test_lists(listing):
    lists, mask, _ = listing
    queries, items = mask.shape
    positives = Positives.from_pairs(*mask.nonzero(as_tuple=True), queries, items, complete=False)
    occurrences = count_occurrences(lists, items, (1, 3, 5), positives)
    judged = int(mask.any(dim=1).sum())
    assert occurrences.judged == judged
    metrics = occurrence_metrics(occurrences.counts, occurrences.bad, occurrences.judged)
    for k in (1, 3, 5):
        counts, bad = naive_counts(lists, mask, k)
        for sparse, dense in ((occurrences.counts[k], counts), (occurrences.bad[k], bad)):
            tensor = torch.tensor(dense)
            assert sparse.dense().tolist() == dense == [sparse[item] for item in range(items)]
            assert histogram(sparse) == histogram(tensor)
            assert occurrence_metrics({k: sparse}) == occurrence_metrics({k: tensor})
            order = sorted((-count, item) for item, count in enumerate(dense) if count)
            assert sparse.largest(4).tolist() == [item for _, item in order[:4]]
            assert (
                sparse.absent_items(torch.arange(sparse.absent)).tolist() == (tensor == 0).nonzero().flatten().tolist()
            )
        assert metrics[f"gini_{k}"] == pytest.approx(naive_gini(counts), abs=1e-12)
        assert metrics[f"atkinson_{k}"] == pytest.approx(naive_atkinson(counts), abs=1e-12)
        assert metrics[f"bad_share_{k}"] == pytest.approx(sum(bad) / (judged * min(k, items)))
        expected = 0.0 if len(set(bad)) == 1 else skew(bad)
        assert metrics[f"bad_skew_{k}"] == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert metrics[f"largest_bad_hub_{k}"] == max(bad)
    alone = count_occurrences(lists.int(), items, (1, 3, 5))
    assert all(torch.equal(alone.counts[k].dense(), occurrences.counts[k].dense()) for k in (1, 3, 5))
    assert alone.judged == 0


@settings(max_examples=25, deadline=None)
@given(listings())
def test_a_pass_over_scores_counts_the_same(listing):
    """Scores that put the items in the order of the lists, both in blocks and as one matrix."""
    lists, mask, size = listing
    queries, items = mask.shape
    mask[:, 0] = True
    scores = torch.zeros(queries, items)
    scores.scatter_(1, lists, torch.arange(lists.shape[1], 0, -1).float().expand(queries, -1).contiguous())
    blocks = [(first, scores[first : first + size]) for first in range(0, queries, size)]
    ranking = rank_blocks(blocks, Positives.from_mask(mask), (1, 3, 5))
    for k in (1, 3, 5):
        assert (ranking.occurrences[k].tolist(), ranking.bad[k].tolist()) == naive_counts(lists, mask, k)
    if mask.any(dim=0).all():
        figures = hubness(scores, (1, 3, 5), mask)
        metrics = occurrence_metrics(ranking.occurrences, ranking.bad)
        assert {name: figures[f"i2t/{name}"] for name in metrics} == metrics
        assert figures["hs_sum"] == pytest.approx(sum(v for name, v in figures.items() if name[3:].startswith("/skew")))


@looped("counts", [[0], [7], [0, 0, 0], [3] * 5, [0] * 999 + [1], [0] * 9 + [10], [5, 1, 0, 2, 9]])
def test_indices_at_their_ends(counts):
    """All-zero counts, one item, more items than slots, equal shares, one item that holds everything."""
    total, tensor = sum(counts), torch.tensor(counts)
    assert gini(tensor) == pytest.approx(naive_gini(counts) if total else 0, abs=1e-12)
    assert atkinson(tensor) == pytest.approx(naive_atkinson(counts) if total else 0, abs=1e-12)
    assert gini(tensor) >= 0
    assert atkinson(tensor) >= 0
    figures = occurrence_metrics({1: tensor, 5: tensor}, {1: tensor, 5: tensor * 0})
    assert all(np.isfinite(value) for value in figures.values())
    assert (figures["bad_share_1"], figures["bad_share_5"]) == (float(total > 0), 0)
    if len(set(counts)) == 1:
        assert [figures[f"{name}_1"] for name in ("skew", "robin_hood", "gini", "atkinson")] == pytest.approx([0] * 4)


def test_antihubs_among_a_billion_items():
    counts = ItemCounts.from_lists(10**9, torch.tensor([0, 3, 3, 999_999_999]))
    assert counts.absent_items(torch.tensor([0, 1, 2, 10**9 - 4])).tolist() == [1, 2, 4, 999_999_998]
    assert occurrence_metrics({10: counts})["antihub_rate_10"] == (10**9 - 3) / 10**9
    assert histogram(torch.tensor([3, 0, 3, 1])) == {"occurrences": [0, 1, 3], "items": [1, 1, 2]}
