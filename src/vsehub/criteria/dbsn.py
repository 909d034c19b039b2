"""Dual-bank Sinkhorn normalisation (Pan 2025, DBSN): Sinkhorn normalisation in which further items take their share."""

from vsehub.criteria.sinkhorn import Sinkhorn


class DualBankSinkhorn(Sinkhorn):
    """s/τ + log v(item), v from normalising e^{s/τ} of reference queries x (items and reference items).

    Reference queries, say captions of training images, belong to none of the items. Reference items to which they do
    belong, the training images, take their share, so that the items' is closer to what their own queries would give.
    Marginals are uniform over the queries and over all items together. temperature, rounds: see `Sinkhorn`; the
    defaults are those of the authors' code. Without reference items the items are alone, which is `Sinkhorn`.
    """

    tried_by_auto = False

    reference_items_as = "columns"
    transductive_equal = Sinkhorn
