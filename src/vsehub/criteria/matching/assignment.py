"""Exact maximum-weight matching (Kuhn 1955)."""

import math

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import Matching

# Beyond this the matrix, in float64 and with its items repeated, takes more than 8 GB.
MOST_ELEMENTS = 2**30


class Assignment(Matching):
    """Each query gets one item so that the sum of the scores is largest; an item serves ceil(Q/M) queries at most.

    A query's list is its item, then the plain order. Time grows with up to the third power of the queries. Among
    assignments with equal sums the solver's choice is deterministic. Raises InputError for sizes beyond 8 GB.
    """

    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """The pairs by score, the lower query first."""
        places = math.ceil(queries / items)
        require(
            queries * items * places <= MOST_ELEMENTS,
            f"an exact assignment of {queries} queries and {items} items needs a matrix of "
            f"{queries * items * places:,} scores ({places} places an item); expected at most {MOST_ELEMENTS:,}. "
            "Use rgm, or take fewer",
        )
        scores = rows(torch.arange(queries)).double().cpu().numpy()
        require(bool(np.isfinite(scores).all()), "scores hold NaN or infinite values; look for such embeddings")
        query, slot = linear_sum_assignment(np.tile(scores, places), maximize=True)
        pairs = np.stack((query, slot % items), axis=1)
        return torch.from_numpy(pairs[np.argsort(-scores[pairs[:, 0], pairs[:, 1]], kind="stable")])
