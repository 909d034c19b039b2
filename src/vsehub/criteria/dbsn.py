"""Dual-bank Sinkhorn normalisation (Pan 2025, DBSN): Sinkhorn normalisation with reference items."""

from vsehub.criteria.sinkhorn import Sinkhorn


class DualBankSinkhorn(Sinkhorn):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference queries x (items and reference items).

    Reference queries, such as captions of training images, match none of the items. Reference items, the training
    images, receive the mass of these queries. The mass left to an item is then closer to what queries of the item
    itself would give. Marginals are uniform over the queries and over all items together. temperature, rounds: see
    `Sinkhorn`; the defaults are those of the authors' code. Without reference items this is `Sinkhorn`.
    """

    reference_items_as = "columns"
