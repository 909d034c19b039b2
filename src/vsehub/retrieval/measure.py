"""The plain ranking of queries and items and any number of corrected ones, found and measured in one pass.

>>> import numpy as np
>>> from vsehub.criteria.csls import CSLS
>>> angles = np.radians([10, 25, 40, 60])
>>> queries = np.stack([np.cos(angles), np.sin(angles)], axis=1)
>>> items = np.array([[1.0, 0.0], [0.9, 0.5], [0.0, 1.0]])
>>> found = measure(queries, items, {"csls": CSLS(k=2)}, k=1)
>>> {ranking.name: ranking.positions.flatten().tolist() for ranking in found.rankings}
{'nns': [0, 1, 1, 1], 'csls': [0, 1, 1, 2]}
>>> [ranking.hubness["largest_hub_1"] for ranking in found.rankings]
[3.0, 2.0]
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.criteria.base import as_sides
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS
from vsehub.retrieval.parts import Parts
from vsehub.retrieval.search import Found, Moved, fitted, found_blocks, matched
from vsehub.retrieval.tally import Changes, Tally, reached

PLAIN = "nns"
# mAP@R and R-Precision need lists as deep as the most positives of a query; deeper ones cost more than the scores.
DEEPEST = 256
# A matching looks at all scores several times over; beyond this many it takes hours.
MOST_MATCHED = 10**9


@dataclass(frozen=True, eq=False)
class Ranked:
    """One ranking: its lists and what was measured of it.

    values, positions: (Q, k), best first, on the CPU. hubness, histograms, truth: see `retrieval.tally.Tally`. changed:
    see `retrieval.tally.Changes`. occurrences, wrong: (M,) N_k and BN_k at the largest k measured; wrong is None
    without positives. item_terms: what the criterion took from each item; of an `ItemBias` the bias (M,) alone.
    """

    name: str
    values: Tensor
    positions: Tensor
    hubness: dict[str, float]
    histograms: dict[str, dict[str, list[int]]]
    truth: dict[str, float | None] | None
    changed: dict[str, float]
    occurrences: Tensor
    wrong: Tensor | None
    item_terms: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """All rankings, the plain one first; ks: the neighbourhood sizes of the figures.

    seconds: {"reference", "search"}, with those of an earlier run whose parts were taken up.
    """

    rankings: list[Ranked]
    ks: tuple[int, ...]
    seconds: dict[str, float]


@torch.no_grad()
def measure(
    queries: Any,
    items: Any,
    criteria: Mapping[str, Any] | None = None,
    reference: Any = None,
    k: int = 10,
    positives: Positives | None = None,
    parts: Parts | None = None,
    device: torch.device | None = None,
    progress: bool = False,
) -> Measured:
    """Rank by inner product, plainly and under each criterion, and measure every ranking.

    queries (Q, D), items (M, D), reference (R, D) queries (None: the queries themselves, transductive): tensors, numpy
    arrays, memory maps, or open files (`data.vectors`). criteria: name -> criterion. k: how deep the lists are.
    positives: which items answer which query; queries without one are left out of what is measured by it. parts: where
    what is found is kept until the work is done. device: where blocks are computed, None for where they are.

    One product of queries and items serves the plain and all corrected rankings, one of reference and items all
    criteria that go by column; a matching makes its own, one for each k that is measured. Raises InputError where
    dimensions differ, a side is empty, k exceeds the items, or a criterion cannot take the reference or the sizes.
    """
    rules = {name: rule for name, rule in (criteria or {}).items() if not isinstance(rule, NearestNeighbor)}
    sides = as_sides(queries, items, reference)
    check_rules(rules, reference is not None, len(sides[0]), len(sides[1]), k)
    _check_positives(positives, len(sides[0]), len(sides[1]))
    require(PLAIN not in rules, f"a criterion is called {PLAIN}, the name of the plain ranking; give it another name")
    asked, among, seen = sides if device is None else (Moved(sides[0], device), sides[1], Moved(sides[2], device))

    # A matching's parts are found first: they are whole, the others come in blocks.
    depths = {k, *reached(len(among)), *(min(one, len(among)) for one in RECALLS)}
    matchings, searching = {}, 0.0
    for name, rule in rules.items():
        if rule.matching is not None:
            matchings[name], seconds = matched(rule, name, asked, among, depths, parts)
            searching += seconds
    streamed = {name: rule for name, rule in rules.items() if name not in matchings}
    terms, fitting = fitted(streamed, among, seen, parts, progress)

    relevance = _relevance(positives)
    shallow = matchings if relevance is not None and k < relevance else ()
    gathered = {
        name: _Gathered(name, k, Tally(len(among), positives, None if name in shallow else relevance))
        for name in (PLAIN, *rules)
    }
    depth = max(*depths, relevance or 0)
    for first, found, seconds in found_blocks(asked, among, depth, streamed, terms, parts, progress):
        searching += seconds
        plain = found[0][1][:, :k]
        rows = slice(first, first + len(plain))
        lists = {name: _beginning(one) for name, one in zip((PLAIN, *streamed), found, strict=True)}
        lists |= {name: _of_matchings(one, rows, k) for name, one in matchings.items()}
        for name, ranking in gathered.items():
            ranking.add(first, lists[name], plain)
    rankings = [ranking.ranked(terms.get(name, ())) for name, ranking in gathered.items()]
    return Measured(rankings, reached(len(among)), {"reference": fitting, "search": searching})


class _Gathered:
    """One ranking, gathered block by block."""

    def __init__(self, name: str, k: int, tally: Tally):
        self._name, self._k, self._tally, self._changes = name, k, tally, Changes()
        self._lists: list[tuple[Tensor, Tensor]] = []

    def add(self, first: int, lists: Found, plain: Tensor) -> None:
        values, positions = lists(self._k)
        self._tally.add(first, lambda k: lists(k)[1])
        self._changes.add(plain, positions)
        self._lists.append((values.clone(), positions.clone()))  # not the deeper list that they begin

    def ranked(self, item_terms: tuple[Tensor, ...]) -> Ranked:
        values, positions = (torch.cat(side) for side in zip(*self._lists, strict=True))
        tally = self._tally
        figures = (tally.hubness(), tally.histograms(), tally.truth(), self._changes.figures())
        deepest = tally.ks[-1]
        return Ranked(
            self._name, values, positions, *figures, tally.occurrences(deepest), tally.wrong(deepest), item_terms
        )


def _beginning(found: tuple[Tensor, Tensor]) -> Found:
    return lambda k: (found[0][:, :k], found[1][:, :k])


def _of_matchings(found: Mapping[int, tuple[Tensor, Tensor]], rows: slice, deepest: int) -> Found:
    """The lists of the matching that was made for k; for a k for which none was made, the beginning of the deepest."""
    return lambda k: tuple(side[rows, :k] for side in found.get(k, found[deepest]))


def _relevance(positives: Positives | None) -> int | None:
    """How deep lists must be for mAP@R and R-Precision, None where that is too deep."""
    most = 0 if positives is None else int(positives.counts.max())
    return most if 0 < most <= DEEPEST else None


def check_rules(rules: Mapping[str, Any], inductive: bool, queries: int, items: int, k: int) -> None:
    """InputError where a criterion cannot take so many queries and items, other reference queries, or k is no depth."""
    whole("k", k)
    require(k <= items, f"k is {k}; expected at most {items}, the number of items")
    for name, rule in rules.items():
        require(
            rule.inductive or not inductive,
            f"{name} matches the queries themselves with the items: it has no form that takes other reference queries. "
            "Leave reference out",
        )
        require(
            rule.matching is None or queries * items <= MOST_MATCHED,
            f"{name} matches all queries with all items: {queries} x {items} scores are more than {MOST_MATCHED:,}. "
            "Take fewer of either, or a criterion that corrects scores, e.g. csls",
        )


def _check_positives(positives: Positives | None, queries: int, items: int) -> None:
    require(
        positives is None or (positives.queries, positives.items) == (queries, items),
        f"positives is of another number of queries or items; expected {queries} queries and {items} items",
    )
