"""The loss of mine.py against plain loops: with ties, several captions an image, and a batch of one pair."""

import math

import pytest
import torch
from mine import SoftMargin


def by_loops(scores, positives, beta):
    size, total = len(scores), 0.0
    for n in range(size):
        for m in range(size):
            if not positives[n, m]:
                total += math.log1p(math.exp(beta * (scores[n, m] - scores[n, n])))
            if not positives[m, n]:
                total += math.log1p(math.exp(beta * (scores[m, n] - scores[n, n])))
    return total / beta / size


@pytest.mark.parametrize("image_ids", [[0, 1, 2, 3, 4], [0, 1, 1, 2, 0], [3, 3, 3, 3, 3], [7]])
def test_equals_loops(image_ids):
    ids = torch.tensor(image_ids)
    scores = torch.rand(len(ids), len(ids), generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 2 - 1
    positives = ids[:, None] == ids[None, :]
    expected = by_loops(scores.numpy(), positives.numpy(), 8.0)
    assert SoftMargin(8.0)(scores, positives)["loss"].item() == pytest.approx(expected, rel=1e-12)
