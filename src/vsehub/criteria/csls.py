"""Cross-domain similarity local scaling (Conneau 2018; ACL eq. 6)."""

from collections.abc import Iterable
from typing import ClassVar

from torch import Tensor

from vsehub.checks import whole
from vsehub.criteria.base import ItemBias, Terms
from vsehub.neighbors.topk import top_k_of_blocks


class CSLS(ItemBias):
    """2s - mean of the query's k nearest items - mean of the item's k nearest reference queries.

    k: number of neighbours on either side, at most all. Raises InputError for a k that is not positive.

    >>> import torch
    >>> images, captions = torch.eye(3), torch.eye(3)[[0, 0, 1, 2]]
    >>> values, positions = CSLS(k=2).search(captions, images, k=1)
    >>> positions.squeeze(1).tolist()
    [0, 0, 1, 2]
    """

    terms_from_k_nearest = True
    scale = 2.0
    GRID: ClassVar = {"k": (1, 2, 5, 10, 20, 50, 100)}

    def __init__(self, k: int = 10):
        whole("k", k)
        self.k = k

    def bias(self, reference_scores: Tensor) -> Tensor:
        """Mean similarity of each item to its k nearest reference queries: (R, m) -> (m,)."""
        return mean_of_nearest(reference_scores, self.k)

    def query_terms(self, blocks: Iterable[Tensor], item_terms: Terms) -> Terms:
        """Mean similarity (b, 1) of each query to its k nearest items, which does not change the query's ranking."""
        return (top_k_of_blocks(blocks, self.k)[0].mean(dim=1, keepdim=True),)

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """ACL eq. 6; without query terms, the query's term is left out."""
        values = super().corrected(scores, (), item_terms)
        return values - query_terms[0] if query_terms else values


def mean_of_nearest(reference_scores: Tensor, k: int) -> Tensor:
    """Mean of the k largest of each column (R, m), of all where there are fewer: (m,)."""
    nearest = reference_scores.T
    if k < len(reference_scores):
        nearest = top_k_of_blocks((nearest,), k)[0]
    return nearest.mean(dim=1)
