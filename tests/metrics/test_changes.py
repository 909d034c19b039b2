"""How far two rankings differ, against loops over sets."""

import numpy as np
import pytest
import torch

from vsehub.metrics.changes import Changes


def test_all_figures_are_those_of_loops():
    generator = np.random.default_rng(0)
    before, after = (torch.from_numpy(np.stack([generator.permutation(12)[:4] for _ in range(9)])) for _ in range(2))
    after[:3] = before[:3]
    changes = Changes()
    for rows in (slice(0, 2), slice(2, 9)):
        changes.add(before[rows], after[rows])
    sides = list(zip(before.tolist(), after.tolist(), strict=True))
    first = np.mean([one[0] != two[0] for one, two in sides])
    overlap = np.mean([len(set(one) & set(two)) / 4 for one, two in sides])
    assert changes.metrics() == pytest.approx({"first": first, "overlap": overlap})
