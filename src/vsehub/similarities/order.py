"""Order embeddings: how far a text is from lying below an image (Vendrov 2016)."""

from collections.abc import Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from vsehub.checks import matrix
from vsehub.types import Similarity

# Differences held at a time: 4 MB in float32, which stay in a CPU's cache between the passes.
TILE_ON_CPU, TILE_ON_GPU = 1 << 20, 1 << 26


class Order(Similarity):
    """S[i, t] = shift - |max(0, |t| - |i|)|_2 of unit vectors made absolute (Vendrov 2016, eq. 3, with VSE++'s abs).

    shift: added to the papers' score, which is at most 0. It changes no ranking and no loss of differences; 1 brings
    positives into [0, 1], as HAL needs. The similarity is neither symmetric nor an inner product. Its gradient at
    distance 0 is 0. Memory beyond the scores is bounded in both passes.
    """

    def __init__(self, shift: float = 1.0):
        super().__init__()
        self.shift = shift
        self.largest = shift  # the score of a text that lies below its image in every dimension

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores (I, T) of (I, D) against (T, D). Raises InputError if the sizes D differ."""
        matrix("images", images)
        matrix("texts", texts, columns=images.shape[1])
        images, texts = (F.normalize(side, dim=-1).abs() for side in (images, texts))
        return self.shift - _Violations.apply(images, texts)


class _Violations(torch.autograd.Function):
    """(I, D), (T, D) -> the norms (I, T) of max(0, text - image)."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, texts: Tensor) -> Tensor:
        distances = images.new_empty(len(images), len(texts))
        for rows, columns, excess in _tiles(images, texts):
            distances[rows, columns] = torch.linalg.vector_norm(excess, dim=-1)
        ctx.save_for_backward(images, texts, distances)
        return distances

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, Tensor]:
        images, texts, distances = ctx.saved_tensors
        image_gradient, text_gradient = torch.zeros_like(images), torch.zeros_like(texts)
        weights = torch.where(distances > 0, upstream / distances, 0)
        for rows, columns, excess in _tiles(images, texts):
            share = weights[rows, columns]
            image_gradient[rows] -= (share[:, None] @ excess)[:, 0]
            text_gradient[columns] += excess.mul_(share[:, :, None]).sum(dim=0)
        return image_gradient, text_gradient


def _tiles(images: Tensor, texts: Tensor) -> Iterator[tuple[slice, slice, Tensor]]:
    """Rows, columns and max(0, text - image) (rows, columns, D) of tiles that cover all pairs."""
    pairs = max(1, (TILE_ON_CPU if images.is_cpu else TILE_ON_GPU) // max(1, images.shape[1]))
    width = max(1, min(len(texts), pairs))
    height = pairs // width
    for top in range(0, len(images), height):
        for left in range(0, len(texts), width):
            rows, columns = slice(top, top + height), slice(left, left + width)
            yield rows, columns, torch.sub(texts[None, columns], images[rows, None]).clamp_min_(0)
