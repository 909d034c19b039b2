"""The next candidate of each query in a heap, from lists of the best items that are looked up as far as needed."""

import itertools
from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace

import numpy as np
import torch

from vsehub.checks import require
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import widened
from vsehub.metrics.topk import top_k

LISTED = 32  # items of a list beyond those that a query wants
FETCHED_ELEMENTS = 2**23  # 32 MB of float32 scores at a time, more only where 64 rows have more
LEAST_FETCHED = 64

# (-score, query, item): the least is the best; of equal scores the lower query, then the lower item.
Pair = tuple[float, int, int]


class Candidates:
    """Pairs of queries and items, best first, of queries that want more items and items that have a place.

    rows: whole rows of scores (b, M) on demand. wanted: items of a query; places: queries of an item. A list holds the
    best of the items that had a place when it was made. Once a pair behind its end may be the best, the list is made
    anew. Raises InputError for NaN or inf.
    """

    def __init__(self, rows: RowsOf, queries: int, items: int, wanted: int, places: int):
        self._rows, self._wishes, self._free = rows, [wanted] * queries, [places] * items
        self._length = wanted + LISTED
        self._at_once = max(FETCHED_ELEMENTS // items, LEAST_FETCHED)
        self._heap: list[Pair] = []
        self._ends: list[Pair] = []  # the last pair of each list that lacks items: they come behind it
        self._accepted: list[list[int]] = [[] for _ in range(queries)]  # accepted items
        # The scores and items of a query's list, and where its rest begins and ends there. Lists share few objects:
        # Python's garbage collector takes its time with many.
        self._listed = [(memoryview(b""), memoryview(b""))] * queries
        self._begin, self._end = [0] * queries, [0] * queries
        self._idle = set(range(queries))  # queries without a pair in the heap
        for first in range(0, queries, self._at_once):
            self._look_up(list(range(first, min(first + self._at_once, queries))))

    def accepted(self) -> Iterator[tuple[int, int]]:
        """The (query, item) pairs of the matching in the order accepted."""
        heap, wishes, free = self._heap, self._wishes, self._free
        while self._reaches_the_best():
            _, query, item = heap[0]
            if free[item]:
                free[item] -= 1
                wishes[query] -= 1
                self._accepted[query].append(item)
                yield query, item
            following = self._next(query) if wishes[query] else None
            if following is not None:
                heapreplace(heap, following)
            else:
                heappop(heap)
                self._idle.add(query)

    def _reaches_the_best(self) -> bool:
        """Whether a pair is left, after the lists that end before the best one were made anew."""
        while self._ends and (not self._heap or self._ends[0] < self._heap[0]):
            who: list[int] = []  # with the queries whose lists end next, since rows are cheaper in blocks
            while self._ends and len(who) < self._at_once:
                query = heappop(self._ends)[1]
                if self._wishes[query]:
                    who.append(query)
                elif not who:
                    break
            if who:
                self._look_up(sorted(who))
        return bool(self._heap)

    def _look_up(self, who: list[int]) -> None:
        """New lists for some queries, of their best items with a place."""
        with_place = np.flatnonzero(self._free)
        if not len(with_place):
            return
        scores = widened(self._rows(torch.tensor(who)))
        require(bool(scores.amax() < torch.inf), "scores hold NaN or inf; look for NaN or infinite embeddings")
        if len(with_place) < len(self._free):
            scores = scores.index_select(1, torch.from_numpy(with_place).to(scores.device))
        width = min(self._length, len(with_place))
        values, columns = (part.cpu().numpy() for part in top_k(scores, width))
        listed = values.ravel().data, with_place[columns].ravel().data  # indexing gives Python's numbers
        counts = (values > -np.inf).sum(axis=1).tolist()  # pairs of score -inf never match
        for begin, query, count in zip(itertools.count(step=width), who, counts, strict=False):
            self._listed[query], self._begin[query], self._end[query] = listed, begin, begin + count
            if count == width < len(with_place):
                last = begin + count - 1
                heappush(self._ends, (-listed[0][last], query, listed[1][last]))
            if query in self._idle and (first := self._next(query)) is not None:
                self._idle.remove(query)
                heappush(self._heap, first)

    def _next(self, query: int) -> Pair | None:
        """The next pair of a query's list whose item has a place."""
        (scores, items), free, accepted = self._listed[query], self._free, self._accepted[query]
        for at in range(self._begin[query], self._end[query]):
            item = items[at]
            if free[item] and item not in accepted:
                self._begin[query] = at + 1
                return -scores[at], query, item
        self._begin[query] = self._end[query]
        return None
