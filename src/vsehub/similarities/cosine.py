"""Cosine similarity (AAAI eq. 1)."""

import torch.nn.functional as F
from torch import Tensor

from vsehub.types import Similarity


class Cosine(Similarity):
    """S[i, t] = <image_i / |image_i|, text_t / |text_t|>, an inner product of unit vectors."""

    inner_product = True
    largest = 1.0

    def vectors(self, encoding: Tensor) -> Tensor:
        """Unit rows whose inner products are the similarities: (N, D) -> (N, D)."""
        return F.normalize(encoding, dim=-1)

    def forward(self, images: Tensor, texts: Tensor) -> Tensor:
        """Scores (I, T) of (I, D) against (T, D)."""
        return self.vectors(images) @ self.vectors(texts).T
