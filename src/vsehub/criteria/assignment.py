"""Exact maximum-weight matching (Kuhn 1955), and its k best for ranks (Murty 1968)."""

import math
import time

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import positive, require, whole
from vsehub.criteria.candidates import RowsOf
from vsehub.criteria.k_best import k_best, solve
from vsehub.criteria.matching import Matching

SAMPLE = 256  # queries of the matching that the estimate is timed on
# Beyond this the matrix alone, in float64 and with its items repeated, is more than 8 GB.
MOST_ELEMENTS = 2**30


class Assignment(Matching):
    """Each query gets one item so that the sum of the scores is largest; an item serves ceil(Q/M) queries at most.

    solutions: how many of the best assignments are found. A query's list is its items in the order of the solutions in
    which they first appear, then the plain order. limit_seconds: what would take longer by the estimate is refused. Of
    assignments with equal sums the solver decides, alike each time. Raises InputError for sizes that are refused.
    """

    def __init__(self, solutions: int = 1, limit_seconds: float = 300.0):
        whole("solutions", solutions)
        positive("limit_seconds", limit_seconds)
        self.solutions, self.limit_seconds = solutions, limit_seconds

    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> tuple[Tensor, Tensor]:
        """Pairs solution by solution, of one solution by score, the lower query first; at most k items a query."""
        places = math.ceil(queries / items)
        require(
            queries * items * places <= MOST_ELEMENTS,
            f"an exact assignment of {queries} queries and {items} items needs a matrix of "
            f"{queries * items * places:,} scores ({places} places an item); expected at most {MOST_ELEMENTS:,}. "
            "Use rgm, or take fewer",
        )
        whole_rows = rows(torch.arange(queries))
        scores = whole_rows.double().cpu().numpy()
        require(bool(np.isfinite(scores).all()), "scores hold NaN or infinite values; look for such embeddings")
        self.refuse_long_work(scores, places)
        found, seen = [], np.zeros((queries, items), bool)
        for chosen in k_best(scores, places, self.solutions):
            query = np.flatnonzero(~seen[np.arange(queries), chosen] & (seen.sum(axis=1) < k))
            query = query[np.argsort(-scores[query, chosen[query]], kind="stable")]
            seen[query, chosen[query]] = True
            found.append(np.stack((query, chosen[query]), axis=1))
        pairs = torch.from_numpy(np.concatenate(found)).to(whole_rows.device)
        return pairs, whole_rows[pairs[:, 0], pairs[:, 1]]

    def refuse_long_work(self, scores: np.ndarray, places: int) -> None:
        """Raise InputError with the estimate where these scores (Q, M) would take longer than `limit_seconds`.

        A matching of a sample of the scores is timed; it takes between the second and the third power of the queries,
        and the estimate takes the third. Murty's method solves about as many smaller ones a solution as there are
        queries, a quarter of the work each on average.
        """
        queries = len(scores)
        sample = np.linspace(0, queries - 1, num=min(SAMPLE, queries), dtype=int)
        part = np.linspace(0, scores.shape[1] - 1, num=min(max(1, len(sample) // places), scores.shape[1]), dtype=int)
        began = time.perf_counter()
        solve(scores[np.ix_(sample, part)], math.ceil(len(sample) / len(part)))
        once = (time.perf_counter() - began) * (queries / len(sample)) ** 3
        estimate = once * (1 + (self.solutions - 1) * queries / 4)
        require(
            estimate <= self.limit_seconds,
            f"{self.solutions} exact assignments of {queries} queries and {scores.shape[1]} items would take about "
            f"{estimate:,.0f} s, more than limit_seconds = {self.limit_seconds:g}. Use rgm, ask for fewer solutions, "
            "take fewer queries, or raise limit_seconds",
        )
