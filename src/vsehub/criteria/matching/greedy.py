"""Relaxed greedy matching (EMNLP algorithm 1)."""

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import torch
from torch import Tensor

from vsehub.checks import one_of, positive, require, whole
from vsehub.criteria.base import RowsOf
from vsehub.criteria.matching.base import Matching
from vsehub.criteria.matching.candidates import accepted_pairs

CAPACITIES = ("proportional", "paper")


class RelaxedGreedyMatching(Matching):
    """Accepts pairs from high to low scores while the query has fewer than k items and the item has a free place.

    relaxation: λ, or a λ for each k (as chosen on validation). An item has round(λk) places (half to even).
    capacity: "paper" is algorithm 1 verbatim, which stops at min(Q, M)·k pairs. With five captions an image its R@1
    from text to image could not pass 20 %; "proportional", the default, gives an item round(λk·max(1, Q/M)) places and
    goes on until every query is served or the pairs run out. Of equal scores the lower query, then the lower item comes
    first. λ = 1 is `GreedyMatching`. Raises InputError for a λ that is not above 0, a k without a λ, and where an item
    would have no place.
    """

    GRID: ClassVar = {"relaxation": (1.0, 1.2, 1.5, 2.0, 2.5, 3.0, 4.0, 6.0, 10.0)}

    def __init__(self, relaxation: float | Mapping[int, float] = 2.0, capacity: str = "proportional"):
        for k, value in relaxation.items() if isinstance(relaxation, Mapping) else ((1, relaxation),):
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
        # λ as it is written, so that 1.3 * 5 is a half and rounded as one.
        places = round(Fraction(str(relaxation)) * k * share)
        require(places > 0, f"relaxation {relaxation} leaves an item no place for k = {k}; expected 1 or more")
        return places


class GreedyMatching(RelaxedGreedyMatching):
    """Relaxed greedy matching with λ = 1 (EMNLP algorithm 1): an item is in no more lists than on average.

    capacity: as in `RelaxedGreedyMatching`. Nothing is tuned, since λ tells the two apart.
    """

    GRID: ClassVar = {}

    def __init__(self, capacity: str = "proportional"):
        super().__init__(1.0, capacity)
