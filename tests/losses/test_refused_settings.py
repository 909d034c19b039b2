"""Settings that no loss takes, which would only show as NaN after hours."""

import math

import pytest

from vsehub.checks import InputError
from vsehub.losses import HAL, HardNegNCE, KNNMargin, MultiSimilarity, NeighborRetr, NTXent, SigLIP


@pytest.mark.parametrize(
    ("loss", "settings"),
    [
        (HAL, {"epsilon": math.nan}),
        (HAL, {"epsilon": "0.7"}),
        (HAL, {"epsilon1": math.inf}),
        (HAL, {"neighbors_k": 2.5}),
        (HAL, {"neighbors_k": 0}),
        (KNNMargin, {"k": True}),
        (KNNMargin, {"k": 0}),
        (KNNMargin, {"margin": math.inf}),
        (MultiSimilarity, {"base": math.nan}),
        (MultiSimilarity, {"epsilon": -0.1}),
        (SigLIP, {"bias": math.nan}),
        (NTXent, {"margin": math.inf}),
        (HardNegNCE, {"beta": -1}),
        (NeighborRetr, {"uniform_weight": math.nan}),
    ],
)
def test_refused(loss, settings):
    ((name, value),) = settings.items()
    with pytest.raises(InputError, match=f"{name} is {value!r}; expected"):
        loss(**settings)
