"""The best assignments of queries to items in the order of their sums (Murty 1968)."""

import heapq
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.optimize import linear_sum_assignment


@dataclass(frozen=True)
class _Part:
    """Some of all assignments, and the best of them: the item (Q,) of each query, and the sum of the scores.

    fixed: of so many queries, the first ones, the item is that of `chosen`. barred: items that the next query must not
    get.
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
    first = _Part(best, _total(scores, best), 0, ())
    numbers = itertools.count()
    waiting = [(-first.total, next(numbers), first)]
    for found in range(1, count + 1):
        if not waiting:
            return
        _, _, part = heapq.heappop(waiting)
        yield part.chosen
        if found < count:  # the last one's parts would be looked at by nobody
            for smaller in _split(scores, places, part):
                heapq.heappush(waiting, (-smaller.total, next(numbers), smaller))


def solve(scores: np.ndarray, places: int) -> np.ndarray | None:
    """The item (Q,) of each query with the largest sum of scores (Q, M); None where only -inf is left for a query."""
    queries, items = scores.shape
    if not queries:
        return np.empty(0, int)
    try:
        return linear_sum_assignment(np.tile(scores, places), maximize=True)[1] % items
    except ValueError:  # scipy's word for it
        return None


def _split(scores: np.ndarray, places: int, part: _Part) -> Iterator[_Part]:
    """All assignments of a part but its best, parted by the first query whose item is another."""
    for query in range(part.fixed, len(scores)):
        barred = (*(part.barred if query == part.fixed else ()), int(part.chosen[query]))
        rest = _rest(scores, places, part.chosen[:query], barred)
        if rest is not None:
            chosen = np.concatenate((part.chosen[:query], rest))
            yield _Part(chosen, _total(scores, chosen), query, barred)


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
