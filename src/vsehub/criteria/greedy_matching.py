"""Relaxed greedy matching (EMNLP algorithm 1), by deferred acceptance."""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import one_of, require, whole
from vsehub.criteria.deferred_acceptance import deferred_acceptance
from vsehub.criteria.matching import Matching, RowsOf

CAPACITIES = ("proportional", "paper")


class RelaxedGreedyMatching(Matching):
    """Visits all pairs from high to low scores; a pair is accepted while its query has fewer than k, its item a place.

    relaxation: λ; an item has round(λk) places, half to even. One number, or one for each k, {1: λ1, 5: λ5, ...}.
    capacity: "paper" is algorithm 1 to the letter, which stops at min(Q, M)·k pairs; "proportional" gives an item
    round(λk·max(1, Q/M)) places and goes on until every query is served or finds no place. Of equal scores the lower
    query, then the lower item comes first. Raises InputError for a λ that gives no place and an unknown capacity.
    """

    GRID: ClassVar = {"relaxation": (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)}

    def __init__(self, relaxation: float | Mapping[int, float] = 2.0, capacity: str = "proportional"):
        one_of("capacity", capacity, CAPACITIES)
        self.relaxation = dict(relaxation) if isinstance(relaxation, Mapping) else relaxation
        for value in self.relaxation.values() if isinstance(self.relaxation, dict) else (relaxation,):
            require(value > 0, f"relaxation is {value!r}; expected a number above 0, usually 1 or more")
        self.capacity = capacity

    def match_rows(self, rows: RowsOf, queries: int, items: int, k: int) -> Tensor:
        """See `Matching.match_rows`; no query's scores are sorted beyond the candidates that it needs."""
        whole("k", k)
        places = self.places(queries, items, k)
        most = min(queries, items) * k if self.capacity == "paper" else None
        return torch.from_numpy(deferred_acceptance(rows, queries, items, k, places, most)[0])

    def places(self, queries: int, items: int, k: int) -> int:
        """How many queries an item may be matched with. Raises InputError where there is no λ for k, or no place."""
        relaxation = self.relaxation
        if isinstance(relaxation, dict):
            known = ", ".join(map(str, sorted(relaxation)))
            require(k in relaxation, f"k is {k} but relaxation has values for {known} alone; give one for {k}")
            relaxation = relaxation[k]
        share = max(1.0, queries / items) if self.capacity == "proportional" else 1.0
        places = round(relaxation * k * share)
        require(places > 0, f"relaxation {relaxation} gives an item no place for k = {k}; expected 1 or more")
        return places
