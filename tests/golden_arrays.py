"""The golden arrays: figures computed in float64 by other implementations (tests/golden/README.md)."""

from pathlib import Path

import numpy as np
import torch

CASES = ("small", "medium")


def golden(case: str) -> dict[str, torch.Tensor]:
    """All arrays of a case as tensors; floats are float64."""
    with np.load(Path(__file__).parent / "golden" / f"{case}.npz", allow_pickle=False) as arrays:
        return {name: torch.from_numpy(arrays[name]) for name in arrays.files}
