import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import skew

from vsehub.metrics import hubness, k_occurrences, recall_metrics
from vsehub.metrics.ranks import Positives, chance_rsum, rank_blocks

KS = (1, 3, 5)


@st.composite
def retrievals(draw):
    """Few distinct scores, so that ties abound; any number of positives from one up in each row; sides of any size."""
    queries, items = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    scores = rng.integers(-draw(st.integers(0, 4)), 3, size=(queries, items)).astype(np.float32)
    if draw(st.booleans()) and queries > 1:
        scores[-1] = scores[0]
    mask = rng.random((queries, items)) < draw(st.sampled_from([0.0, 0.2, 0.9]))
    mask[np.arange(queries), rng.integers(items, size=queries)] = True
    return torch.from_numpy(scores), torch.from_numpy(mask)


def naive_rank(row, positive):
    """1 + the negatives that score at least as high as the best positive."""
    best = max(score for score, hit in zip(row, positive, strict=True) if hit)
    return 1 + sum(score >= best and not hit for score, hit in zip(row, positive, strict=True))


def naive_occurrences(scores, k):
    counts = [0] * scores.shape[1]
    for row in scores.tolist():
        for item in sorted(range(len(row)), key=lambda item: (-row[item], item))[:k]:
            counts[item] += 1
    return counts


@settings(max_examples=40, deadline=None)
@given(retrievals(), st.integers(1, 12))
def test_ranks_and_occurrences(retrieval, size):
    scores, mask = retrieval
    expected = [naive_rank(row, hits) for row, hits in zip(scores.tolist(), mask.tolist(), strict=True)]
    whole = rank_blocks([(0, scores)], Positives.from_mask(mask), KS)
    blocks = rank_blocks(
        ((i, scores[i : i + size]) for i in range(0, len(scores), size)), Positives.from_mask(mask), KS
    )
    for ranking in (whole, blocks):
        assert ranking.ranks.tolist() == expected
        for k in KS:
            assert ranking.occurrences[k].tolist() == naive_occurrences(scores, k)
    for k, counts in k_occurrences(scores, KS).items():
        assert counts.tolist() == naive_occurrences(scores, k)
        assert counts.sum() == len(scores) * min(k, scores.shape[1])


def test_the_median_is_the_floor_of_the_zero_based_one():
    scores = torch.tensor([[5.0, 0, 0, 0], [5, 4, 0, 0], [5, 4, 3, 0], [5, 4, 3, 2]])
    metrics = recall_metrics(scores, torch.eye(4, dtype=torch.bool))
    assert [metrics[f"i2t/{name}"] for name in ("r1", "r5", "medr", "meanr")] == [25, 100, 2, 2.5]


@settings(max_examples=30, deadline=None)
@given(retrievals())
def test_hubness_figures(retrieval):
    metrics = hubness(retrieval[0], KS)
    total = 0.0
    for direction, scores in (("i2t", retrieval[0]), ("t2i", retrieval[0].T)):
        for k in KS:
            counts = np.array(naive_occurrences(scores, k), dtype=float)
            expected = 0.0 if (counts == counts[0]).all() else skew(counts)
            slots = counts.sum()
            assert metrics[f"{direction}/skew_{k}"] == pytest.approx(expected, rel=1e-9, abs=1e-9)
            moved = sum(max(0.0, count - counts.mean()) for count in counts) / slots
            assert metrics[f"{direction}/robin_hood_{k}"] == pytest.approx(moved, abs=1e-12)
            assert metrics[f"{direction}/antihub_rate_{k}"] == pytest.approx((counts == 0).mean())
            held = sum(count for count in counts if count >= 2 * k) / slots
            assert metrics[f"{direction}/hub_occurrence_{k}"] == pytest.approx(held)
            assert metrics[f"{direction}/largest_hub_{k}"] == counts.max()
            total += expected
        ones = naive_occurrences(scores, 1)
        assert metrics[f"{direction}/share_1"] == pytest.approx(sum(n == 1 for n in ones) / len(ones))
        for least in (2, 5, 10):
            assert metrics[f"{direction}/share_{least}"] == pytest.approx(sum(n >= least for n in ones) / len(ones))
    assert metrics["hs_sum"] == pytest.approx(total, rel=1e-9, abs=1e-9)


def test_chance_is_the_mean_rsum_of_all_random_rankings():
    mask = np.zeros((12, 13), bool)
    mask[range(12), range(12)] = mask[:4, 12] = mask[0, 1] = True  # one image has three texts, one text four images
    drawn = np.random.default_rng(0).random((5000, *mask.shape))
    rsums = np.zeros(5000)
    for scores, positives in ((drawn, mask), (drawn.transpose(0, 2, 1), mask.T)):
        best = np.where(positives, scores, -1).max(axis=2, keepdims=True)
        ranks = 1 + (scores > best).sum(axis=2)
        rsums += sum(100 * (ranks <= k).mean(axis=1) for k in (1, 5, 10))
    expected = chance_rsum(mask.sum(axis=1).tolist(), mask.sum(axis=0).tolist())
    assert expected == pytest.approx(rsums.mean(), abs=4 * rsums.std() / 5000**0.5)
