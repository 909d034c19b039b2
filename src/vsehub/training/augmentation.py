"""Augmentation of training batches: words and regions left out.

Everything random depends only on the seed, the epoch and the rows, so that a resumed run draws what an unbroken one
would, and several processes what one would.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import probability


@dataclass(frozen=True)
class Augmentation:
    """The settings of what a batch changes; each a probability.

    drop_words, drop_regions: with which a word of a caption, or a region of an image, is left out (VSE∞, Chen et al.
    2021: 0.2); `<start>` and `<end>`, and at least one region, stay. Raises InputError for other values.
    """

    drop_words: float = 0.0
    drop_regions: float = 0.0

    def __post_init__(self) -> None:
        for name in ("drop_words", "drop_regions"):
            probability(name, getattr(self, name))


UNCHANGED = Augmentation()


def without_words(texts: Tensor, lengths: Tensor, share: float, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Captions (N, L) of `lengths` (N,), each word but the first and the last dropped with probability `share`."""
    column = torch.arange(texts.shape[1])
    inside = column < lengths[:, None]
    ends = (column == 0) | (column == lengths[:, None] - 1)
    stays = inside & (ends | torch.from_numpy(random.random(tuple(texts.shape)) >= share))
    left = stays.sum(dim=1)
    order = (~stays).to(torch.uint8).argsort(dim=1, stable=True)
    shorter = texts.gather(1, order).masked_fill(column >= left[:, None], 0)
    return shorter[:, : int(left.max())], left


def without_regions(images: Tensor, share: float, drawn: np.ndarray) -> Tensor:
    """Images (N, R, features), each region set to 0, which is padding, where `drawn` (N, R) is below `share`.

    An image that would have no region left keeps all of them.
    """
    kept = torch.from_numpy(drawn >= share)
    kept |= ~(kept & images.any(dim=2)).any(dim=1, keepdim=True)
    return images * kept[:, :, None].to(images.dtype)
