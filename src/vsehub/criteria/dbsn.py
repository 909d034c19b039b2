"""Dual-bank Sinkhorn normalisation (Pan 2025, DBSN): Sinkhorn normalisation with reference items."""

from typing import ClassVar

from vsehub.criteria.sinkhorn import Sinkhorn


class DualBankSinkhorn(Sinkhorn):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference queries x (items and reference items).

    Reference queries, such as captions of training images, match none of the items. Reference items, the training
    images, receive the mass of these queries. The mass left to an item is then closer to what queries of the item
    itself would give. Marginals are uniform over the queries and over all items together. temperature, rounds: see
    `Sinkhorn`, with `relative=False` and weight 1; the defaults are those of the authors' code.
    """

    reference_items_as = "columns"
    GRID: ClassVar = {"temperature": (0.005, 0.01, 0.02, 0.05, 0.1)}

    def __init__(self, temperature: float = 0.01, rounds: int = 10):
        super().__init__(temperature, rounds, weight=1.0, relative=False)
