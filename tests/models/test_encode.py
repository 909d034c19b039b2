"""Encoding outside of training."""

from contextlib import nullcontext

import numpy as np
import pytest
import torch
from torch import nn

from vsehub.models.encode import encode_images


class Noting(nn.Linear):
    """A layer that notes how cuDNN may round while it runs, and fails on infinity."""

    def forward(self, images):
        self.noted = *settings(), self.training
        if not images.isfinite().all():
            raise ValueError("infinity")
        return super().forward(images)


def settings():
    return torch.backends.cudnn.conv.fp32_precision, torch.backends.cudnn.rnn.fp32_precision


@pytest.mark.parametrize("value", [1.0, np.inf])
def test_nothing_is_rounded_to_tf32_and_settings_come_back(value):
    encoder, before = Noting(3, 2), settings()
    images = np.full((5, 3), value, dtype=np.float32)
    with nullcontext() if np.isfinite(value) else pytest.raises(ValueError, match="infinity"):
        encode_images(encoder, images, np.arange(5), 2)
    assert encoder.noted == ("ieee", "ieee", False)
    assert encoder.training
    assert settings() == before != ("ieee", "ieee")
