"""Plain nearest-neighbour search: the scores as they are."""

from torch import Tensor

from vsehub.criteria.base import Columns, ItemBias, Terms
from vsehub.neighbors.vectors import VectorSource


class NearestNeighbor(ItemBias):
    """Ranks by s, unchanged: the baseline of the other criteria."""

    needs_reference = False

    def bias(self, reference_scores: Tensor) -> Tensor:
        """No term: zeros (m,)."""
        return reference_scores.new_zeros(reference_scores.shape[1])

    def fit(self, columns: Columns, reference_items: Columns | None = None) -> Terms:
        """No terms; the scores are not computed."""
        return ()

    def corrected(self, scores: Tensor, query_terms: Terms, item_terms: Terms) -> Tensor:
        """The scores as they are."""
        return scores

    def tile_correction(self, queries: VectorSource, items: VectorSource, item_terms: Terms) -> None:
        """Nothing to correct."""
        return None
