"""The plain ranking and any number of corrected rankings, searched and measured in one pass over the scores.

>>> import numpy as np
>>> from vsehub.criteria.csls import CSLS
>>> angles = np.radians([10, 25, 40, 60])
>>> queries = np.stack([np.cos(angles), np.sin(angles)], axis=1)
>>> items = np.array([[1.0, 0.0], [0.9, 0.5], [0.0, 1.0]])
>>> found = measure(Sides.of(queries, items), {"csls": CSLS(k=2)}, k=1)
>>> {ranking.name: ranking.positions.flatten().tolist() for ranking in found.rankings}
{'nns': [0, 1, 1, 1], 'csls': [0, 1, 1, 2]}
>>> [ranking.hubness["largest_hub_1"] for ranking in found.rankings]
[3.0, 2.0]
"""

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.criteria.base import Correction, Criterion, Terms
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.changes import Changes
from vsehub.metrics.occurrences import (
    KS,
    ItemCounts,
    Occurrences,
    histogram,
    occurrence_metrics,
)
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS, at_r
from vsehub.metrics.topk import Best
from vsehub.ranking.engines import Engine, Local
from vsehub.ranking.inputs import Sides

# (k) -> positions (b, k) of some queries, best first
Positions = Callable[[int], Tensor]


class Tally:
    """Hubness of a ranking and, if positives are given, its recalls and precisions.

    items: M. ks: the neighbourhood sizes of `KS` that M items allow. relevance: the depth of lists that mAP@R and
    R-Precision need; None omits these metrics.
    """

    def __init__(self, items: int, positives: Positives | None, relevance: int | None):
        self.items, self.positives, self.relevance = items, positives, relevance
        self.ks = reached(items)
        # One counter per k: a matching's list for k = 5 is not the beginning of its list for k = 10.
        self._counted = {k: Occurrences(items, (k,)) for k in self.ks}
        self._found = dict.fromkeys(RECALLS, 0)
        self._precision = torch.zeros(2, dtype=torch.float64)

    def add(self, first: int, lists: Positions) -> None:
        """Count the lists of the queries `first`, `first` + 1, ..."""
        for k, counted in self._counted.items():
            counted.add(lists(k), self.positives, first)
        if self.positives is None:
            return
        for k in RECALLS:
            nearest = lists(min(k, self.items))
            self._found[k] += int(self.positives.hits(nearest, first).any(dim=1).sum())
        if self.relevance is not None:
            hits = self.positives.hits(lists(self.relevance), first)
            self._precision += torch.stack(at_r(hits, self.positives.counts[first : first + len(hits)])).sum(dim=1)

    def occurrences(self, k: int) -> ItemCounts:
        """N_k."""
        return self._counted[k].counts[k]

    def wrong(self, k: int) -> ItemCounts | None:
        """BN_k: how often an item is a wrong answer; None if positives are not known."""
        return None if self.positives is None else self._counted[k].bad[k]

    def hubness(self) -> dict[str, float]:
        """The metrics of `occurrence_metrics`, with those of bad hubs where positives are known."""
        counts = {k: self.occurrences(k) for k in self.ks}
        if self.positives is None:
            return occurrence_metrics(counts)
        bad = {k: counted.bad[k] for k, counted in self._counted.items()}
        return occurrence_metrics(counts, bad, self._counted[self.ks[0]].judged)

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """The distribution of N_k for each k, as `metrics.occurrences.histogram` gives it."""
        return {str(k): histogram(self.occurrences(k)) for k in self.ks}

    def truth(self) -> dict[str, float | None] | None:
        """ "r1", "r5", "r10", "map_r", "r_precision" in % of the queries that have a positive; None without positives.

        map_r and r_precision are None if the lists are not deep enough for them.
        """
        if self.positives is None:
            return None
        queries = int((self.positives.counts > 0).sum())
        purity = (100.0 * self._precision / queries).tolist() if self.relevance is not None else (None, None)
        recalls = {f"r{k}": 100.0 * found / queries for k, found in self._found.items()}
        return recalls | dict(zip(("map_r", "r_precision"), purity, strict=True))


def reached(items: int) -> tuple[int, ...]:
    """The neighbourhood sizes of `KS` that this number of items allows."""
    return tuple(k for k in KS if k <= items)


log = logging.getLogger(__name__)

PLAIN = "nns"
# mAP@R and R-Precision need lists as deep as the most positives of a query; deeper lists cost more than the scores.
DEEPEST = 256
# A matching reads all scores several times; beyond this many it takes hours.
MOST_MATCHED = 10**9

# (k) -> values and positions (b, k) of some queries, best first
Lists = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Ranked:
    """One measured ranking.

    values, positions: (Q, k), best first, on the CPU. hubness, histograms, truth: see `Tally`. changed: see `Changes`.
    occurrences, wrong: N_k and BN_k at the largest measured k; wrong is None without positives. item_terms: the
    criterion's terms of each item, for an `ItemBias` just the bias (M,).
    """

    name: str
    values: Tensor
    positions: Tensor
    hubness: dict[str, float]
    histograms: dict[str, dict[str, list[int]]]
    truth: dict[str, float | None] | None
    changed: dict[str, float]
    occurrences: ItemCounts
    wrong: ItemCounts | None
    item_terms: tuple[Tensor, ...]


@dataclass(frozen=True, eq=False)
class Measured:
    """All rankings, the plain one first; ks: the neighbourhood sizes of hubness.

    seconds: {"reference", "search"}.
    """

    rankings: list[Ranked]
    ks: tuple[int, ...]
    seconds: dict[str, float]


@torch.no_grad()
def measure(
    sides: Sides, criteria: Mapping[str, Any] | None = None, k: int = 10, engine: Engine | None = None
) -> Measured:
    """Rank by plain inner product and under each criterion, and measure each ranking.

    criteria: name -> criterion. k: the depth of the lists. Metrics against `sides.positives` omit queries without one.
    engine: the engine that computes; None: `Local()`.

    One product of queries and items serves the plain and all corrected rankings, and one product of reference and items
    all criteria that work column by column. A matching computes its own product for each measured k. Raises InputError
    if k exceeds the items, if a criterion cannot take the reference or the sizes, if none takes the reference items,
    and for what the engine cannot take.
    """
    engine = Local() if engine is None else engine
    criteria = {
        name: criterion for name, criterion in (criteria or {}).items() if not isinstance(criterion, NearestNeighbor)
    }
    check_criteria(criteria, sides, k)
    engine.require(criteria, sides)
    require(
        PLAIN not in criteria, f"a criterion is called {PLAIN}, the name of the plain ranking; give it another name"
    )

    # Matchings come first: a matching is computed at once, the other rankings block by block.
    items, positives = len(sides.items), sides.positives
    depths = {k, *reached(items), *(min(one, items) for one in RECALLS)}
    began = time.perf_counter()
    matchings = {
        name: _matchings(name, criterion, sides, depths, engine)
        for name, criterion in criteria.items()
        if criterion.matching is not None
    }
    searching = time.perf_counter() - began
    streamed = {name: criterion for name, criterion in criteria.items() if name not in matchings}
    began = time.perf_counter()
    terms = _item_terms(streamed, sides, engine)
    spent = {"reference": time.perf_counter() - began}

    # The depth of lists that mAP@R and R-Precision need; None if it is too large.
    most = 0 if positives is None else int(positives.counts.max())
    relevance = most if 0 < most <= DEEPEST else None
    shallow = matchings if relevance is not None and k < relevance else ()
    gathered = {
        name: _Gathered(name, k, Tally(items, positives, None if name in shallow else relevance))
        for name in (PLAIN, *criteria)
    }
    depth = max(*depths, relevance or 0)
    began = time.perf_counter()
    corrections, own = list(streamed.values()), [terms[name] for name in streamed]
    for first, found in engine.list_blocks(sides, depth, corrections, own):
        here = [(values.cpu(), positions.cpu()) for values, positions in found]
        searching += time.perf_counter() - began
        plain = here[0][1][:, :k]
        rows = slice(first, first + len(plain))
        lists = {name: _beginning(one) for name, one in zip((PLAIN, *streamed), here, strict=True)}
        lists |= {name: _of_matchings(one, rows, k) for name, one in matchings.items()}
        for name, ranking in gathered.items():
            ranking.add(first, lists[name], plain)
        began = time.perf_counter()
    spent["search"] = searching
    rankings = [ranking.ranked(terms.get(name, ())) for name, ranking in gathered.items()]
    return Measured(rankings, reached(items), spent)


def _item_terms(criteria: Mapping[str, Correction], sides: Sides, engine: Engine) -> dict[str, Terms]:
    """The item terms of each criterion; criteria that work by column share one product."""
    together = [name for name, criterion in criteria.items() if criterion.columnwise and criterion.needs_reference]
    groups = [together] * bool(together) + [[name] for name in criteria if name not in together]
    terms: dict[str, Terms] = {}
    for group in groups:
        found = engine.item_terms([criteria[name] for name in group], sides)
        terms |= dict(zip(group, found, strict=True))
    return terms


def _matchings(name: str, criterion: Criterion, sides: Sides, depths: set[int], engine: Engine) -> dict[int, Best]:
    """The lists of a matching for each k of depths; each k is a separate matching."""
    found: dict[int, Best] = {}
    for k in sorted(depths):
        log.info("%s: matching %d queries and %d items, k = %d", name, len(sides.queries), len(sides.items), k)
        values, positions = engine.matched(criterion, sides, k)
        found[k] = values.cpu(), positions.cpu()
    return found


def check_criteria(criteria: Mapping[str, Any], sides: Sides, k: int) -> None:
    """Raise InputError for an impossible k, and for criteria that cannot take these sizes or this reference.

    At least one criterion must take the reference items, if there are any.
    """
    whole("k", k)
    queries, items = len(sides.queries), len(sides.items)
    require(k <= items, f"k is {k}; expected at most {items}, the number of items")
    require(
        sides.reference_items is None or any(criterion.takes_reference_items for criterion in criteria.values()),
        f"reference_items: {', '.join(criteria) or PLAIN} does not look at reference items. Leave reference_items out, "
        "or choose a criterion that takes them, e.g. dual_is",
    )
    for name, criterion in criteria.items():
        require(
            not sides.given or criterion.correction.reference_items_as != "rows",
            f"{name} compares items with each other, and scores of queries with items do not say how they compare. "
            "Give queries and items, or a criterion that looks at the queries' scores alone, e.g. is",
        )
        require(
            criterion.inductive or not sides.inductive,
            f"{name} matches the queries themselves with the items: it has no form that takes other reference queries. "
            "Leave reference out",
        )
        require(
            criterion.matching is None or queries * items <= MOST_MATCHED,
            f"{name} matches all queries with all items: {queries} x {items} scores are more than {MOST_MATCHED:,}. "
            "Take fewer of either, or a criterion that corrects scores, e.g. csls",
        )


class _Gathered:
    """A ranking, collected block by block."""

    def __init__(self, name: str, k: int, tally: Tally):
        self._name, self._k, self._tally, self._changes = name, k, tally, Changes()
        self._lists: list[tuple[Tensor, Tensor]] = []

    def add(self, first: int, lists: Lists, plain: Tensor) -> None:
        values, positions = lists(self._k)
        self._tally.add(first, lambda k: lists(k)[1])
        self._changes.add(plain, positions)
        self._lists.append((values.clone(), positions.clone()))  # a copy, so that the deeper list is freed

    def ranked(self, item_terms: tuple[Tensor, ...]) -> Ranked:
        values, positions = (torch.cat(side) for side in zip(*self._lists, strict=True))
        tally = self._tally
        measured = (tally.hubness(), tally.histograms(), tally.truth(), self._changes.metrics())
        deepest = tally.ks[-1]
        return Ranked(
            self._name,
            values,
            positions,
            *measured,
            tally.occurrences(deepest),
            tally.wrong(deepest),
            item_terms,
        )


def _beginning(found: tuple[Tensor, ...]) -> Lists:
    return lambda k: (found[0][:, :k], found[1][:, :k])


def _of_matchings(found: Mapping[int, tuple[Tensor, Tensor]], rows: slice, deepest: int) -> Lists:
    """The lists of the matching for k or, if there is none for this k, the beginning of the deepest one's."""

    def lists(k: int) -> tuple[Tensor, Tensor]:
        values, positions = found.get(k, found[deepest])
        return values[rows, :k], positions[rows, :k]

    return lists
