"""Corrected search in the manner of scikit-learn's neighbours: distances and positions, and sparse graphs."""

from typing import TYPE_CHECKING, Any

import numpy as np

from vsehub.checks import one_of, require, whole
from vsehub.criteria.base import ItemBias

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix

    from vsehub.serving.estimator import CorrectedSearch


def kneighbors(
    search: "CorrectedSearch", queries: Any, k: int, return_distance: bool
) -> tuple[np.ndarray, np.ndarray] | np.ndarray:
    """Distances and positions (Q, k); see `CorrectedSearch.kneighbors`."""
    whole("n_neighbors", k)
    itself = queries is None
    count = len(search.items_)
    require(k <= count - itself, f"n_neighbors is {k}; expected at most {count - itself}, the other items")
    found = search._among_items(k + 1) if itself else search.search(queries, k)
    values, positions = (np.asarray(one) for one in found)
    if itself:  # an item is no neighbour of itself, wherever it ranks
        own = positions == np.arange(count)[:, None]
        own[:, -1] |= ~own.any(axis=1)
        values, positions = (one[~own].reshape(count, k) for one in (values, positions))
    return (_distances(search, values), positions) if return_distance else positions


def _distances(search: "CorrectedSearch", scores: np.ndarray) -> np.ndarray:
    """u - score, where u is the largest score that unit vectors can have, or else the largest of these."""
    criterion, terms = search.criterion_, search.item_terms_
    most = float(scores.max())
    if isinstance(criterion, ItemBias) and search.normalize and (terms is not None or not criterion.needs_reference):
        most = criterion.scale - (float(terms[0].min()) if terms else 0.0)
    return np.maximum(most - scores, 0.0)  # rounding may lift a score above the largest


def kneighbors_graph(search: "CorrectedSearch", queries: Any, k: int, mode: str) -> "csr_matrix":
    """A sparse matrix (Q, M); see `CorrectedSearch.kneighbors_graph`."""
    from scipy.sparse import csr_matrix

    one_of("mode", mode, ("connectivity", "distance"))
    found = kneighbors(search, queries, k, return_distance=True)
    distances, positions = found
    ends = np.arange(0, positions.size + 1, k)
    data = np.ones(positions.size) if mode == "connectivity" else distances.astype(np.float64).ravel()
    return csr_matrix((data, positions.ravel(), ends), shape=(len(positions), len(search.items_)))
