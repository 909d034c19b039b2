"""float32 on a GPU as on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_tf32() -> Iterator[None]:
    """Keeps cuDNN from rounding float32 to TF32, ten bits, as torch lets it for GRUs and convolutions.

    The settings are the process's: two threads may not be in it at once.
    """
    cudnn: Any = torch.backends.cudnn
    before = [(kind, kind.fp32_precision) for kind in (cudnn.conv, cudnn.rnn)]
    try:
        for kind, _ in before:
            kind.fp32_precision = "ieee"
        yield
    finally:
        for kind, precision in before:
            kind.fp32_precision = precision
