"""One set of vectors: the neighbours of each item among the others, and their graph."""

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, one_of, require, whole
from vsehub.criteria.base import Criterion, ItemBias, Terms, finite, fit_all, require_within
from vsehub.neighbors.tiles import nearest_blocks, ranges, without_itself
from vsehub.neighbors.vectors import BLOCK, VectorSource

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix


def neighbors_of_items(
    criterion: Criterion, items: VectorSource, terms: Terms | None, k: int
) -> tuple[Tensor, Tensor, Terms]:
    """Values and positions (M, k) of the k best other items of each item, and the terms of the items.

    terms: None to estimate them from the items, those of each from the others.
    """
    require_within(repr(criterion), criterion, terms is not None)
    if terms is None:
        terms = fit_all([criterion.correction], items, items, within=True)[0]
    require(whole("k", k) < len(items), f"k is {k}; expected at most {len(items) - 1}, the number of other items")
    blocks = nearest_blocks(items, items, k + 1, [criterion.correction.over(items, items, terms)])
    parts = [without_itself(torch.arange(first, first + len(best[0])), best) for first, [best] in blocks]
    values, positions = (torch.cat(part) for part in zip(*parts, strict=True))
    return finite("values", values), positions, terms


def kneighbors_graph(criterion: Criterion, items: VectorSource, terms: Terms | None, k: int, mode: str) -> "csr_matrix":
    """The graph (M, M) of `neighbors_of_items`; see `CorrectedSearch.kneighbors_graph`."""
    from scipy.sparse import csr_matrix

    one_of("mode", mode, ("connectivity", "distance"))
    values, positions, terms = neighbors_of_items(criterion, items, terms, k)
    data = torch.ones_like(values)
    if mode == "distance":
        if not isinstance(criterion, ItemBias):
            fail(f"mode: the values of {criterion!r} of different items do not compare; give mode='connectivity'")
        zero = torch.zeros_like(values)
        values = values + criterion.corrected(zero, tuple(term[:, None] for term in terms), (zero,))
        norms = [items.rows(part.start, part.stop).square().sum(dim=1) for part in ranges(len(items), BLOCK)]
        largest = torch.maximum(criterion.corrected(torch.cat(norms), terms, terms).max(), values.max())
        data = torch.cat([zero[:, :1], largest - values], dim=1)
        positions = torch.cat([torch.arange(len(items))[:, None], positions], dim=1)
    ends = np.arange(len(items) + 1) * positions.shape[1]
    return csr_matrix((data.flatten().numpy(), positions.flatten().numpy(), ends), shape=(len(items),) * 2)
