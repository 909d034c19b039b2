"""How far two rankings differ, against loops over sets."""

import numpy as np
import pytest
import torch

from vsehub.ranking.measure import changes


def test_all_figures_are_those_of_loops():
    generator = np.random.default_rng(0)
    before, after = (torch.from_numpy(np.stack([generator.permutation(12)[:4] for _ in range(9)])) for _ in range(2))
    after[:3] = before[:3]
    sides = list(zip(before.tolist(), after.tolist(), strict=True))
    first = np.mean([one[0] != two[0] for one, two in sides])
    overlap = np.mean([len(set(one) & set(two)) / 4 for one, two in sides])
    assert changes(before, after) == pytest.approx({"first": first, "overlap": overlap})
