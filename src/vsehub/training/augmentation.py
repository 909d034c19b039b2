"""Augmentation of training batches: words and regions left out, synonyms, mixed pairs.

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
    2021: 0.2); `<start>` and `<end>`, and at least one region, stay. replace_words: with which a word that has synonyms
    is replaced by one of them (EDA, Wei and Zou 2019). synonyms: a table of word and synonym; None: words that stand
    for each other in the training captions. mix: with which a pair is mixed with another of the batch: the mean of the
    images, and both captions one after the other (MixGen, Hao et al. 2023). Raises InputError for other values.
    """

    drop_words: float = 0.0
    replace_words: float = 0.0
    synonyms: str | None = None
    drop_regions: float = 0.0
    mix: float = 0.0

    def __post_init__(self) -> None:
        for name in ("drop_words", "replace_words", "drop_regions", "mix"):
            probability(name, getattr(self, name))

    @property
    def of_words(self) -> str | None:
        """The first setting that is used and needs captions of words; None if there is none."""
        return next((name for name in ("drop_words", "replace_words", "mix") if getattr(self, name)), None)


UNCHANGED = Augmentation()


def without_words(texts: Tensor, lengths: Tensor, share: float, random: np.random.Generator) -> tuple[Tensor, Tensor]:
    """Captions (N, L) of `lengths` (N,), each word but the first and the last dropped with probability `share`."""
    place = torch.arange(texts.shape[1])
    inside = place < lengths[:, None]
    ends = (place == 0) | (place == lengths[:, None] - 1)
    return packed(texts, inside & (ends | torch.from_numpy(random.random(tuple(texts.shape)) >= share)))


def packed(texts: Tensor, kept: Tensor) -> tuple[Tensor, Tensor]:
    """The words of captions (N, L) that are `kept` (N, L), moved to the left and padded with 0; their numbers (N,)."""
    order = (~kept).to(torch.uint8).argsort(dim=1, stable=True)
    left = kept.sum(dim=1)
    shorter = texts.gather(1, order).masked_fill(torch.arange(texts.shape[1]) >= left[:, None], 0)
    return shorter[:, : int(left.max())], left


def joined(texts: Tensor, lengths: Tensor, partners: Tensor) -> tuple[Tensor, Tensor]:
    """Captions (N, L) of `lengths` (N,), each followed by the caption of its partner (N,) where that is another one.

    The last token of the first caption and the first one of the second, `<end>` and `<start>`, are left out.
    """
    place, mixed = torch.arange(texts.shape[1]), (partners != torch.arange(len(texts)))[:, None]
    inside = place < lengths[:, None]
    first = inside & ~(mixed & (place == lengths[:, None] - 1))
    second = inside[partners] & mixed & (place > 0)
    return packed(torch.cat([texts, texts[partners]], dim=1), torch.cat([first, second], dim=1))


def without_regions(images: Tensor, share: float, drawn: np.ndarray) -> Tensor:
    """Images (N, R, features), each region set to 0, which is padding, where `drawn` (N, R) is below `share`.

    An image that would have no region left keeps all of them.
    """
    kept = torch.from_numpy(drawn >= share)
    kept |= ~(kept & images.any(dim=2)).any(dim=1, keepdim=True)
    return images * kept[:, :, None].to(images.dtype)


def mean_of(images: Tensor, others: Tensor) -> Tensor:
    """The mean of two images each (N, ...), of their type; whole numbers are rounded down."""
    if images.dtype.is_floating_point:
        return (images + others) / 2
    return ((images.int() + others.int()) // 2).to(images.dtype)


def partners(rows: int, share: float, random: np.random.Generator) -> Tensor:
    """(N,) for each pair another one of the batch with probability `share`, else the pair itself."""
    others = torch.from_numpy((np.arange(rows) + random.integers(1, max(rows, 2), rows)) % rows)
    return torch.where(torch.from_numpy(random.random(rows) < share), others, torch.arange(rows))
