"""Exact maximum-weight matching (Kuhn 1955) and its k best solutions (Murty 1968)."""

import heapq
import itertools
import math
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import Matching

# Beyond this the matrix, in float64 and with its items repeated, takes more than 8 GB.
MOST_ELEMENTS = 2**30


class Partition(NamedTuple):
    """Some of all assignments; a heap orders them by the total of their best one, then by number.

    total: the negative sum of scores of the best assignment `best` (Q,). fixed: the number of queries, from the first,
    whose item is that of the best. barred: the items that the next query must not get.
    """

    total: float
    number: int
    best: np.ndarray
    fixed: int
    barred: list[int]


class Assignment(Matching):
    """Each query gets one item so that the sum of the scores is largest; an item serves ceil(Q/M) queries at most.

    solutions: the number of best assignments to find. A query's list is its items in the order of the solutions in
    which they first appear, then the plain order. Time grows with up to the third power of the queries, and each
    further solution solves about as many smaller problems as there are queries. Of assignments with equal sums the
    solver decides, alike each time. Raises InputError for sizes that do not fit in 8 GB.
    """

    def __init__(self, solutions: int = 1):
        whole("solutions", solutions)
        self.solutions = solutions

    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """Pairs solution by solution, of one solution by score, the lower query first; at most k items a query."""
        places = math.ceil(queries / items)
        require(
            queries * items * places <= MOST_ELEMENTS,
            f"an exact assignment of {queries} queries and {items} items needs a matrix of "
            f"{queries * items * places:,} scores ({places} places an item); expected at most {MOST_ELEMENTS:,}. "
            "Use rgm, or take fewer",
        )
        scores = rows(torch.arange(queries)).double().cpu().numpy()
        require(bool(np.isfinite(scores).all()), "scores hold NaN or infinite values; look for such embeddings")
        pairs, listed = [], np.zeros((queries, items), bool)
        for chosen in itertools.islice(k_best(scores, places), self.solutions):
            query = np.flatnonzero(~listed[np.arange(queries), chosen] & (listed.sum(axis=1) < k))
            query = query[np.argsort(-scores[query, chosen[query]], kind="stable")]
            listed[query, chosen[query]] = True
            pairs.append(np.stack((query, chosen[query]), axis=1))
        return torch.from_numpy(np.concatenate(pairs))


def k_best(scores: np.ndarray, places: int) -> Iterator[np.ndarray]:
    """All assignments (Q,), the item of each query, the largest sum of scores (Q, M) first.

    places: number of queries that an item may serve, at least Q/M. Two assignments differ in the item of some query;
    which of an item's places a query has makes no difference. Ties: the assignment that was found first comes first.
    """
    numbers = itertools.count()
    best = linear_sum_assignment(np.tile(scores, places), maximize=True)[1] % scores.shape[1]
    waiting = [Partition(0.0, next(numbers), best, 0, [])]
    while waiting:
        subset = heapq.heappop(waiting)
        chosen = subset.best
        yield chosen
        for query in range(subset.fixed, len(scores)):  # the others, grouped by the first query whose item differs
            others = [*subset.barred, chosen[query]] if query == subset.fixed else [chosen[query]]
            left = places - np.bincount(chosen[:query], minlength=scores.shape[1])
            columns = np.repeat(np.arange(scores.shape[1]), left)
            rest = scores[query:, columns]
            rest[0, np.isin(columns, others)] = -np.inf
            with suppress(ValueError):  # scipy raises it where no assignment is finite
                best = np.concatenate((chosen[:query], columns[linear_sum_assignment(rest, maximize=True)[1]]))
                total = scores[np.arange(len(best)), best].sum()
                heapq.heappush(waiting, Partition(-total, next(numbers), best, query, others))
