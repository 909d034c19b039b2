"""float32 on a GPU as on a CPU."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


@contextmanager
def without_tf32() -> Iterator[None]:
    """Within the block, cuDNN does not round float32 to TF32 (10 bits), its default for GRUs and convolutions.

    The setting is global: two threads must not use this at the same time.
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
