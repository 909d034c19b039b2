"""Relaxed greedy matching (EMNLP algorithm 1), from lists of each query's best items, as long as needed."""

import itertools
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import one_of, positive, require, whole
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import Matching, widened
from vsehub.neighbors.topk import top_k

CAPACITIES = ("proportional", "paper")
LISTED = 32  # items of a list beyond those that a query wants
MOST_LISTED = 2**20  # pairs of all lists, unless the shortest lists have more
FETCHED_ELEMENTS = 2**23  # 32 MB of float32 scores at a time, more only where 64 rows have more
LEAST_FETCHED = 64


class RelaxedGreedyMatching(Matching):
    """Accepts pairs from high to low scores while the query has fewer than k items and the item has a free place.

    relaxation: λ, or a λ for each k (as chosen on validation). An item has round(λk) places (half to even).
    capacity: "paper" is algorithm 1 verbatim, which stops at min(Q, M)·k pairs: with five captions per image, R@1 from
    text to image then cannot exceed 20 %. "proportional", the default, gives an item round(λk·max(1, Q/M)) places and
    goes on until every query is served or the pairs run out. Among equal scores the lower query comes first, then the
    lower item. λ = 1 is `GreedyMatching`. Raises InputError for a λ that is not above 0, a k without a λ, and where an
    item would have no place.
    """

    GRID: ClassVar = {"relaxation": (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)}

    def __init__(self, relaxation: float | Mapping[int, float] = 2.0, capacity: str = "proportional"):
        by_k = relaxation if isinstance(relaxation, Mapping) else {1: relaxation}
        for k, value in by_k.items():
            whole("a k of relaxation", k)
            positive("relaxation", value)
        one_of("capacity", capacity, CAPACITIES)
        self.relaxation = dict(relaxation) if isinstance(relaxation, Mapping) else relaxation
        self.capacity = capacity

    def accepted(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """The pairs in the order of their scores; see `Matching.accepted`."""
        most = min(queries, items) * k if self.capacity == "paper" else queries * k
        pairs = accepted_pairs(rows, queries, items, k, self.places(queries, items, k))
        return torch.tensor(list(itertools.islice(pairs, most)), dtype=torch.int64).reshape(-1, 2)

    def places(self, queries: int, items: int, k: int) -> int:
        """The number of queries that may have an item."""
        relaxation = self.relaxation
        if isinstance(relaxation, Mapping):
            require(k in relaxation, f"relaxation has no value for k = {k}, only for k = {[*relaxation]}")
            relaxation = relaxation[k]
        share = max(Fraction(1), Fraction(queries, items)) if self.capacity == "proportional" else 1
        # λ as a decimal fraction: 1.3 · 5 is then exactly 6.5, and rounded half to even.
        places = round(Fraction(str(relaxation)) * k * share)
        require(places > 0, f"relaxation {relaxation} leaves an item no place for k = {k}; expected 1 or more")
        return places


class GreedyMatching(RelaxedGreedyMatching):
    """Relaxed greedy matching with λ = 1 (EMNLP algorithm 1): an item is in at most k * max(1, Q / M) lists.

    capacity: as in `RelaxedGreedyMatching`. λ is not tuned: with another it would be a `RelaxedGreedyMatching`.
    """

    GRID: ClassVar = {}

    def __init__(self, capacity: str = "proportional"):
        super().__init__(1.0, capacity)


def accepted_pairs(rows: RowsOf, queries: int, items: int, wanted: int, places: int) -> Iterator[tuple[int, int]]:
    """(query, item) pairs, best first, of queries that want more items and items that may be accepted.

    Ties: the lower query, then the lower item. rows: whole rows of scores (b, M) on demand. wanted: items of a query;
    places: queries of an item. Works on a list of each query's best items. As soon as the next pair could lie behind
    the end of a list, new, longer lists are made from the items that have free places. Raises InputError for NaN or
    inf.
    """
    wishes, free = [wanted] * queries, [places] * items
    accepted: list[list[int]] = [[] for _ in range(queries)]
    length, complete = wanted + LISTED, False
    while not complete:
        waiting, free_items = np.flatnonzero(wishes), np.flatnonzero(free)
        if not len(waiting) or not len(free_items):
            return
        lists = []
        for block in torch.from_numpy(waiting).split(max(FETCHED_ELEMENTS // items, LEAST_FETCHED)):
            scores = widened(rows(block))
            require(bool(scores.amax() < torch.inf), "scores hold NaN or inf; look for NaN or infinite embeddings")
            if len(free_items) < items:
                scores = scores.index_select(1, torch.from_numpy(free_items).to(scores.device))
            values, columns = (part.cpu().numpy() for part in top_k(scores, length))
            lists.append((values, free_items[columns]))
        values, listed = (np.concatenate(part) for part in zip(*lists, strict=True))
        is_end = np.zeros(values.shape, bool)
        is_end[:, -1] = values.shape[1] < len(free_items)
        row, column = np.nonzero(values > -np.inf)  # pairs of score -inf never match
        order = np.lexsort((listed[row, column], row, -values[row, column]))
        row, column = row[order], column[order]
        pairs = waiting[row].tolist(), listed[row, column].tolist(), is_end[row, column].tolist()
        complete = True
        for query, item, end in zip(*pairs, strict=True):
            if wishes[query] and free[item] and item not in accepted[query]:
                wishes[query] -= 1
                free[item] -= 1
                accepted[query].append(item)
                yield query, item
            if end and wishes[query]:
                complete = False
                break
        length = max(wanted + LISTED, min(2 * length, MOST_LISTED // len(waiting)))
