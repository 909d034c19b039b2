"""Dual inverted softmax: the inverted softmax over a bank of queries and one of items (Wang 2023, DualIS)."""

from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import fail, positive
from vsehub.criteria.base import Columns, ItemBias, Terms, finite_terms


class DualInvertedSoftmax(ItemBias):
    """Logarithm of e^{β1 s} / Σ_r e^{β1 s(r,m)} · e^{β2 s} / Σ_g e^{β2 s(g,m)}: (β1 + β2)s - b(m).

    r runs over the reference queries, g over the reference items, s(g, m) being a similarity of two items. Without
    reference items g runs over the items themselves, the item m included: leaving m out would give a single item an
    infinite term, and does not improve recalls. beta1, beta2: the inverse temperatures of the two banks. A bank of
    items costs a product of the size items x items more than `InvertedSoftmax`. Raises InputError for a beta that is
    not positive and finite.
    """

    reference_items_as = "rows"
    GRID: ClassVar = {"beta1": (10.0, 20.0, 30.0, 50.0, 100.0), "beta2": (0.1, 1.0, 3.0, 10.0, 30.0)}

    def __init__(self, beta1: float = 50.0, beta2: float = 1.0):
        positive("beta1", beta1)
        positive("beta2", beta2)
        self.beta1, self.beta2 = beta1, beta2
        self.scale = beta1 + beta2

    def bias(self, reference_scores: Tensor) -> Tensor:
        """The query bank's part of the bias, log Σ_r e^{β1 s(r,m)} of scores (R, m): (m,)."""
        return (self.beta1 * reference_scores).logsumexp(dim=0)

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """The bias (M,): the query bank's part and log Σ_g e^{β2 s(g,m)}."""
        if reference_items is None:
            fail("reference_item_scores (G, M) are needed: of reference items, or of the items, with the items")
        (of_queries,) = super().fit(columns)
        of_items = torch.cat([(self.beta2 * block).logsumexp(dim=0) for block in reference_items()])
        return finite_terms((of_queries + of_items,))
