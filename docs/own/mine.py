"""Parts of your own, one of each kind: copy this folder, and keep what you need (docs/extend.md)."""

from typing import ClassVar

import numpy as np
import pytorch_lightning as pl
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vsehub.checks import positive, probability, require
from vsehub.criteria.base import ItemBias
from vsehub.data import CaptionedImages, pairs_by_caption
from vsehub.losses.base import checked, fill_excluded
from vsehub.types import Encoder, Loss, NeighborStats, Similarity

COLOURS = {"black": (0, 0, 0), "red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}
COLOURS |= {"cyan": (0, 255, 255), "pink": (255, 0, 255), "yellow": (255, 255, 0), "white": (255, 255, 255)}


class Quarters:
    """Pictures (3, 8, 8) of four quarters, each of one colour, and a caption that names the colours."""

    name = "quarters"

    def __init__(self, images: int = 300, seed: int = 0):
        self.images, self.seed = images, seed

    def load(self, split: str) -> CaptionedImages:
        """The split "train", "val" or "test"."""
        random = np.random.default_rng([self.seed, *split.encode()])
        chosen = random.integers(len(COLOURS), size=(self.images, 2, 2))
        pixels = np.array([*COLOURS.values()], np.uint8)[chosen]  # (images, 2, 2, 3)
        pictures = pixels.transpose(0, 3, 1, 2).repeat(4, axis=2).repeat(4, axis=3)
        captions = [" ".join([*COLOURS][colour] for colour in row) for row in chosen.reshape(-1, 4)]
        return CaptionedImages(pictures, captions, pairs_by_caption(np.arange(self.images)))


class Patches(Encoder):
    """A linear map of the mean colours of 2 x 2 patches.

    image_shape: (3, height, width), from the data. dim: D of the joint space. Raises InputError for other shapes.
    """

    def __init__(self, image_shape: tuple[int, ...], dim: int = 256):
        super().__init__()
        require(len(image_shape) == 3, f"Patches encodes pictures, but the data's images have shape {image_shape}")
        self.dim, self.linear = dim, nn.Linear(4 * image_shape[0], dim)

    def forward(self, images: Tensor) -> Tensor:
        """(N, 3, height, width) of uint8 -> (N, D)."""
        return self.linear(F.adaptive_avg_pool2d(images.float() / 255, 2).flatten(1))


class Distance(Similarity):
    """1 - |x - y| / 2 of unit vectors x and y."""

    largest = 1.0

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores (I, T) of (I, D) against (T, D)."""
        return 1 - torch.cdist(F.normalize(images, dim=1), F.normalize(texts, dim=1)) / 2


class SoftMargin(Loss):
    """The hinge without a corner (Hermans 2017, for triplets).

    Per pair 1/β log(1 + e^{β(S_neg - S_pos)}), summed over the negatives of its row and column; the mean over pairs.
    beta: β; the larger, the closer to a hinge without margin. Raises InputError for a beta that is not positive.
    """

    def __init__(self, beta: float = 20.0):
        super().__init__()
        positive("beta", beta)
        self.beta = beta

    def forward(self, scores: Tensor, positives: Tensor, neighbors: NeighborStats | None = None) -> dict[str, Tensor]:
        """scores (N, N), positives (N, N) boolean -> {"loss": scalar}; `neighbors` is not used."""
        scores = checked(scores, positives)
        paired = scores.diagonal()
        negatives = fill_excluded(scores, positives)
        rows = F.softplus(self.beta * (negatives - paired[:, None])).sum(dim=1)
        columns = F.softplus(self.beta * (negatives - paired[None, :])).sum(dim=0)
        return {"loss": (rows + columns).mean() / self.beta}


class Quantile(ItemBias):
    """s - weight · q, where q is the `share` quantile of the item's scores with the reference queries.

    Raises InputError for a share outside of 0 to 1.
    """

    GRID: ClassVar = {"share": (0.5, 0.9, 0.99)}

    def __init__(self, share: float = 0.9, weight: float = 1.0):
        probability("share", share)
        self.share, self.weight = share, weight

    def bias(self, reference_scores: Tensor) -> Tensor:
        """(R, m) -> (m,)."""
        return self.weight * reference_scores.quantile(self.share, dim=0)


class Gap(pl.Callback):
    """Logs train/gap: the mean score of the pairs minus that of all other entries of the batch."""

    def on_train_batch_end(self, trainer, module, outputs, batch, index):
        scores, positives = module.last_step.scores, module.last_step.positives
        gap = scores[positives].mean() - scores[~positives].mean()
        module.log("train/gap", gap, on_step=False, on_epoch=True, batch_size=1)
