"""Exact maximum-weight matching (Kuhn 1955) and its k best solutions (Murty 1968)."""

import heapq
import itertools
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from vsehub.checks import positive, require, whole
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import Matching

SAMPLE = 256  # queries of the matching that the estimate is timed on
# Beyond this the matrix, in float64 and with its items repeated, takes more than 8 GB.
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


@dataclass(frozen=True)
class _Subproblem:
    """Some of all assignments, and the best of them: the item (Q,) of each query, and the sum of the scores.

    fixed: the number of queries, from the first, whose item is that of `chosen`. barred: items that the next query must
    not get.
    """

    chosen: np.ndarray
    total: float
    fixed: int
    barred: tuple[int, ...]


def k_best(scores: np.ndarray, places: int, count: int) -> Iterator[np.ndarray]:
    """Up to `count` assignments (Q,), the item of each query, the largest sum of scores (Q, M) first.

    places: how many queries an item may serve. Two assignments differ in the item of some query; which of an item's
    places a query has makes no difference. Fewer are given where there are no more. Of equal sums the one that was
    found first comes first.
    """
    best = solve(scores, places)
    if best is None:
        return
    first = _Subproblem(best, _total(scores, best), 0, ())
    numbers = itertools.count()
    waiting = [(-first.total, next(numbers), first)]
    for found in range(1, count + 1):
        if not waiting:
            return
        _, _, part = heapq.heappop(waiting)
        yield part.chosen
        if found < count:  # the parts of the last one are not needed
            for smaller in _split(scores, places, part):
                heapq.heappush(waiting, (-smaller.total, next(numbers), smaller))


def solve(scores: np.ndarray, places: int) -> np.ndarray | None:
    """The item (Q,) of each query with the largest sum of scores (Q, M); None where only -inf is left for a query."""
    queries, items = scores.shape
    if not queries:
        return np.empty(0, int)
    try:
        return linear_sum_assignment(np.tile(scores, places), maximize=True)[1] % items
    except ValueError:  # scipy raises it where no assignment is finite
        return None


def _split(scores: np.ndarray, places: int, part: _Subproblem) -> Iterator[_Subproblem]:
    """All assignments of a part but its best, grouped by the first query whose item differs."""
    for query in range(part.fixed, len(scores)):
        barred = (*(part.barred if query == part.fixed else ()), int(part.chosen[query]))
        rest = _rest(scores, places, part.chosen[:query], barred)
        if rest is not None:
            chosen = np.concatenate((part.chosen[:query], rest))
            yield _Subproblem(chosen, _total(scores, chosen), query, barred)


def _rest(scores: np.ndarray, places: int, fixed: np.ndarray, barred: tuple[int, ...]) -> np.ndarray | None:
    """The best items of the queries after the fixed ones, the first of which must not get the barred items."""
    left = places - np.bincount(fixed, minlength=scores.shape[1])
    columns = np.repeat(np.arange(scores.shape[1]), left)
    open_ = scores[len(fixed) :, columns]
    if open_.shape[0] > open_.shape[1]:
        return None
    open_[0, np.isin(columns, barred)] = -np.inf
    found = solve(open_, 1)
    return None if found is None else columns[found]


def _total(scores: np.ndarray, chosen: np.ndarray) -> float:
    return float(scores[np.arange(len(chosen)), chosen].sum())
