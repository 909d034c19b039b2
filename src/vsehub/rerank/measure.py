"""The plain ranking and any number of corrected rankings, searched and measured in one pass over the scores.

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

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import fail, require, whole
from vsehub.criteria.base import Correction, Criterion, Terms, as_sides, fit_all
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.changes import Changes, RoundingChanges
from vsehub.metrics.occurrences import KS, Occurrences, histogram, occurrence_metrics
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS, at_r
from vsehub.neighbors.given import UnitVectors, moved
from vsehub.neighbors.rounded import RoundedVectors
from vsehub.neighbors.tiles import TileCorrection, nearest, nearest_blocks
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled
from vsehub.rerank.distributed import Distributed
from vsehub.rerank.parts import Parts, Pieces, kept

log = logging.getLogger(__name__)

PLAIN = "nns"
# mAP@R and R-Precision need lists as deep as the most positives of a query; deeper lists cost more than the scores.
DEEPEST = 256
# A matching reads all scores several times; beyond this many it takes hours.
MOST_MATCHED = 10**9
# Queries that are ranked in float32 too, where scores are rounded.
SAMPLE = 1000

# (k) -> positions (b, k) of some queries, best first
Positions = Callable[[int], Tensor]
# (k) -> values and positions (b, k) of some queries, best first
Lists = Callable[[int], tuple[Tensor, Tensor]]


@dataclass(frozen=True, eq=False)
class Ranked:
    """One measured ranking.

    values, positions: (Q, k), best first, on the CPU. hubness, histograms, truth: see `Tally`. changed: see `Changes`.
    occurrences, wrong: (M,) N_k and BN_k at the largest measured k; wrong is None without positives. item_terms: the
    criterion's terms of each item, for an `ItemBias` just the bias (M,). rounding: see `RoundingChanges`; None for
    float32 scores.
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
    rounding: dict[str, float | None] | None = None


@dataclass(frozen=True, eq=False)
class Measured:
    """All rankings, the plain one first; ks: the neighbourhood sizes of hubness.

    seconds: {"reference", "search"}, including those of an earlier run whose parts were reused, and, where scores are
    rounded, "float32_sample".
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
    reference_items: Any = None,
    bf16: bool = False,
    seed: int = 0,
    engine: Distributed | None = None,
) -> Measured:
    """Rank by plain inner product and under each criterion, and measure each ranking.

    queries (Q, D), items (M, D), reference (R, D) queries (None: the queries themselves, transductive), reference_items
    (G, D) for criteria that take them (None: the items themselves): tensors, numpy arrays, memory maps, or open files
    (`data.vectors`). Instead of vectors, `GivenScores` are queries and reference, and `UnitVectors` are items.
    criteria: name -> criterion. k: the depth of the lists. positives: which items answer which query; metrics against
    them omit queries without one. parts: where results are kept until the work is done; an engine needs them. device:
    where blocks are computed; None: the device of the vectors. bf16: rank by scores of vectors that are rounded to
    bfloat16, and rank `SAMPLE` of the queries, drawn by `seed`, in float32 too, to see what that changes. What the
    criteria take from the reference is float32 in any case, so that rankings differ by the rounding of their own scores
    only. engine: what divides the items, which then lie in files, among workers, in float32, for criteria that
    `refuse_unsharded` allows; None: everything is computed in this process.

    One product of queries and items serves the plain and all corrected rankings, and one product of reference and items
    all criteria that work column by column. A matching computes its own product for each measured k. Raises InputError
    if dimensions differ, a side is empty, k exceeds the items, a criterion cannot take the reference or the sizes, none
    takes the reference items, or bf16 is asked for with what it cannot round (`float32_only`).
    """
    criteria = {
        name: criterion for name, criterion in (criteria or {}).items() if not isinstance(criterion, NearestNeighbor)
    }
    sides = as_sides(queries, items, reference)
    given = isinstance(sides[1], UnitVectors)
    check_criteria(criteria, reference is not None, len(sides[0]), len(sides[1]), k, reference_items is not None, given)
    obstacle = float32_only(criteria, given)
    require(not bf16 or obstacle is None, f"bf16: {obstacle}")
    bank = None
    if reference_items is not None:
        bank = as_vectors("reference_items", reference_items, columns=sides[1].shape[1])
    _check_positives(positives, len(sides[0]), len(sides[1]))
    require(
        PLAIN not in criteria, f"a criterion is called {PLAIN}, the name of the plain ranking; give it another name"
    )
    asked, among, seen = sides if device is None else (moved(sides[0], device), sides[1], moved(sides[2], device))

    # Matchings come first: each is computed at once, the other rankings in blocks.
    depths = {k, *reached(len(among)), *(min(one, len(among)) for one in RECALLS)}
    matchings, searching = {}, 0.0
    for name, criterion in criteria.items():
        if criterion.matching is not None:
            matchings[name], seconds = matched(criterion, name, asked, among, depths, parts, bank)
            searching += seconds
    streamed = {name: criterion for name, criterion in criteria.items() if name not in matchings}
    terms, fitting = fitted(streamed, among, seen, parts, progress, bank, engine)

    relevance = _relevance(positives)
    shallow = matchings if relevance is not None and k < relevance else ()
    gathered = {
        name: _Gathered(name, k, Tally(len(among), positives, None if name in shallow else relevance))
        for name in (PLAIN, *criteria)
    }
    depth = max(*depths, relevance or 0)
    sample = _Float32Sample(asked, seed) if bf16 else None
    ranked_by = RoundedVectors(among) if bf16 else among
    for first, found, took in found_blocks(asked, ranked_by, depth, streamed, terms, parts, progress, engine):
        searching += took
        if sample is not None:
            sample.add(first, found)
        plain = found[0][1][:, :k]
        rows = slice(first, first + len(plain))
        lists = {name: _beginning(one) for name, one in zip((PLAIN, *streamed), found, strict=True)}
        lists |= {name: _of_matchings(one, rows, k) for name, one in matchings.items()}
        for name, ranking in gathered.items():
            ranking.add(first, lists[name], plain)
    rankings = [ranking.ranked(terms.get(name, ())) for name, ranking in gathered.items()]
    spent = {"reference": fitting, "search": searching}
    if sample is not None:
        began = time.perf_counter()
        changes = sample.changes(among, streamed, terms, k, depth, positives, progress)
        rankings = [replace(ranking, rounding=one) for ranking, one in zip(rankings, changes, strict=True)]
        spent["float32_sample"] = time.perf_counter() - began
    return Measured(rankings, reached(len(among)), spent)


def check_criteria(
    criteria: Mapping[str, Any],
    inductive: bool,
    queries: int,
    items: int,
    k: int,
    reference_items: bool = False,
    given: bool = False,
) -> None:
    """Raise InputError for an impossible k, and for criteria that cannot take these sizes or this reference.

    reference_items: whether there are any, which at least one criterion must take. given: whether scores are given
    instead of vectors.
    """
    whole("k", k)
    require(k <= items, f"k is {k}; expected at most {items}, the number of items")
    require(
        not reference_items or any(criterion.takes_reference_items for criterion in criteria.values()),
        f"reference_items: {', '.join(criteria) or PLAIN} does not look at reference items. Leave reference_items out, "
        "or choose a criterion that takes them, e.g. dual_is",
    )
    for name, criterion in criteria.items():
        require(
            not given or criterion.correction.reference_items_as != "rows",
            f"{name} compares items with each other, and scores of queries with items do not say how they compare. "
            "Give queries and items, or a criterion that looks at the queries' scores alone, e.g. is",
        )
        require(
            criterion.inductive or not inductive,
            f"{name} matches the queries themselves with the items: it has no form that takes other reference queries. "
            "Leave reference out",
        )
        require(
            criterion.matching is None or queries * items <= MOST_MATCHED,
            f"{name} matches all queries with all items: {queries} x {items} scores are more than {MOST_MATCHED:,}. "
            "Take fewer of either, or a criterion that corrects scores, e.g. csls",
        )


def float32_only(criteria: Mapping[str, Any], given: bool) -> str | None:
    """Why scores cannot be those of rounded vectors, None if they can; arguments as `check_criteria`'s."""
    if given:
        return "scores are given, which are taken as they are"
    matching = next((name for name, criterion in criteria.items() if criterion.matching is not None), None)
    return None if matching is None else f"{matching} matches queries and items with each other, in float32 only"


def _check_positives(positives: Positives | None, queries: int, items: int) -> None:
    require(
        positives is None or (positives.queries, positives.items) == (queries, items),
        f"positives is of another number of queries or items; expected {queries} queries and {items} items",
    )


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
            if self.positives is None:
                counted.add(lists(k))
            else:
                counted.add_judged(lists(k), self.positives, first)
        if self.positives is None:
            return
        for k in RECALLS:
            self._found[k] += int(self.positives.hits(lists(min(k, self.items)), first).any(dim=1).sum())
        if self.relevance is not None:
            hits = self.positives.hits(lists(self.relevance), first)
            self._precision += torch.stack(at_r(hits, self.positives.counts[first : first + len(hits)])).sum(dim=1)

    def occurrences(self, k: int) -> Tensor:
        """N_k (M,)."""
        return self._counted[k].counts[k]

    def wrong(self, k: int) -> Tensor | None:
        """BN_k (M,): how often an item is a wrong answer; None if positives are not known."""
        return None if self.positives is None else self._counted[k].bad[k]

    def hubness(self) -> dict[str, float]:
        """The metrics of `occurrence_metrics`, with those of bad hubs where positives are known."""
        counts = {k: self.occurrences(k) for k in self.ks}
        if self.positives is None:
            return occurrence_metrics(counts)
        return occurrence_metrics(
            counts, {k: self._counted[k].bad[k] for k in self.ks}, self._counted[self.ks[0]].judged
        )

    def histograms(self) -> dict[str, dict[str, list[int]]]:
        """The distribution of N_k for each k, as `metrics.hubness.histogram` gives it."""
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


class _Float32Sample:
    """A sample of the queries, whose rankings by rounded scores are compared with those by float32 scores."""

    def __init__(self, queries: VectorSource, seed: int):
        rows, self._drawn = sampled(queries, SAMPLE, seed)
        self._queries = as_vectors("queries", rows)
        self._lists: list[list[Tensor]] = []

    def add(self, first: int, found: Pieces) -> None:
        """Keep the sample's lists of the queries `first`, `first` + 1, ..., of every ranking."""
        within = self._drawn[(self._drawn >= first) & (self._drawn < first + len(found[0][1]))] - first
        self._lists.append([positions[within] for _, positions in found])

    def changes(
        self,
        items: VectorSource,
        criteria: Mapping[str, Correction],
        terms: Mapping[str, Terms],
        k: int,
        depth: int,
        positives: Positives | None,
        progress: bool,
    ) -> list[dict[str, float | None]]:
        """The metrics of `RoundingChanges` of every ranking, the plain one first."""
        corrections = _corrections(self._queries, items, criteria, terms)
        exact = nearest(self._queries, items, depth, corrections, "float32 sample" if progress else None)
        known = None if positives is None else positives.of(self._drawn)
        found = []
        for (_, lists), *rounded in zip(exact, *self._lists, strict=True):
            changes = RoundingChanges(k)
            changes.add(lists, torch.cat(rounded), known)
            found.append(changes.metrics())
        return found


def reached(items: int) -> tuple[int, ...]:
    """The neighbourhood sizes of `KS` that this number of items allows."""
    return tuple(k for k in KS if k <= items)


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
            self._name, values, positions, *measured, tally.occurrences(deepest), tally.wrong(deepest), item_terms
        )


def _beginning(found: tuple[Tensor, ...]) -> Lists:
    return lambda k: (found[0][:, :k], found[1][:, :k])


def _of_matchings(found: Mapping[int, tuple[Tensor, Tensor]], rows: slice, deepest: int) -> Lists:
    """The lists of the matching for k or, if there is none for this k, the beginning of the deepest one's."""

    def lists(k: int) -> tuple[Tensor, Tensor]:
        values, positions = found.get(k, found[deepest])
        return values[rows, :k], positions[rows, :k]

    return lists


def _relevance(positives: Positives | None) -> int | None:
    """The depth of lists that mAP@R and R-Precision need; None if it is too large."""
    most = 0 if positives is None else int(positives.counts.max())
    return most if 0 < most <= DEEPEST else None


def fitted(
    criteria: Mapping[str, Correction],
    items: VectorSource,
    reference: VectorSource,
    parts: Parts | None,
    progress: bool,
    reference_items: VectorSource | None = None,
    engine: Distributed | None = None,
) -> tuple[dict[str, Terms], float]:
    """The item terms of each criterion, and the seconds; criteria that work by column share one product."""
    together = [name for name, criterion in criteria.items() if criterion.columnwise and criterion.needs_reference]
    groups = [together] * bool(together) + [[name] for name in criteria if name not in together]
    terms: dict[str, Terms] = {}
    total = 0.0
    for group in groups:
        name, own = "-".join(group), [criteria[name] for name in group]
        if engine is None:
            find = partial(fit_all, own, items, reference, reference_items, progress)
        else:
            find = partial(engine.fit, name, own, items, reference, reference_items, _required(parts))
        found, seconds = kept(parts, f"terms-{name}", find)
        terms |= dict(zip(group, found, strict=True))
        total += seconds
    return terms, total


def _required(parts: Parts | None) -> Parts:
    if parts is None:
        fail("parts is None; workers' results are kept in a folder: give parts=Parts(FOLDER, {})")
    return parts


def matched(
    criterion: Criterion,
    name: str,
    queries: VectorSource,
    items: VectorSource,
    depths: set[int],
    parts: Parts | None,
    reference_items: VectorSource | None = None,
) -> tuple[dict[int, tuple[Tensor, Tensor]], float]:
    """Values and positions (Q, k) of a matching for each k of depths; each k is a separate matching."""
    lists: dict[int, tuple[Tensor, Tensor]] = {}
    total = 0.0
    for k in sorted(depths):
        log.info("%s: matching %d queries and %d items, k = %d", name, len(queries), len(items), k)
        match = _match(criterion, queries, items, reference_items if criterion.takes_reference_items else None, k)
        ((values, positions),), seconds = kept(parts, f"matched-{name}-{k}", match)
        lists[k] = values.cpu(), positions.cpu()
        total += seconds
    return lists, total


def _match(
    criterion: Criterion, queries: VectorSource, items: VectorSource, reference_items: VectorSource | None, k: int
) -> Callable[[], Pieces]:
    return lambda: [criterion.search(queries, items, k=k, reference_items=reference_items)]


def found_blocks(
    queries: VectorSource,
    items: VectorSource,
    depth: int,
    criteria: Mapping[str, Correction],
    terms: Mapping[str, Terms],
    parts: Parts | None,
    progress: bool,
    engine: Distributed | None = None,
) -> Iterator[tuple[int, Pieces, float]]:
    """(first query, lists of the plain ranking and of each criterion, seconds) for one block of queries at a time.

    Each of the lists is values and positions (b, depth) on the CPU. Blocks that parts hold are not searched again.
    """
    start = 0
    while parts is not None and start < len(queries):
        stored = parts.get(_name(depth, start))
        if stored is None:
            break
        yield start, *stored
        start += len(stored[0][0][0])
    if start == len(queries):
        return
    if start:
        log.info("continuing from query %d of %d", start, len(queries))
    began = time.perf_counter()
    if engine is None:
        corrections = _corrections(queries, items, criteria, terms)
        blocks = nearest_blocks(queries, items, depth, corrections, "searching" if progress else None, start=start)
    else:
        own = [terms[name] for name in criteria]
        blocks = engine.nearest_blocks(queries, items, depth, list(criteria.values()), own, _required(parts), start)
    for first, found in blocks:
        lists = [tuple(side.cpu() for side in one) for one in found]
        seconds = time.perf_counter() - began
        if parts is not None:
            parts.put(_name(depth, first), lists, seconds)
        yield first, lists, seconds
        began = time.perf_counter()


def _corrections(
    queries: VectorSource, items: VectorSource, criteria: Mapping[str, Correction], terms: Mapping[str, Terms]
) -> list[TileCorrection | None]:
    """None for the plain ranking, and the correction of each criterion."""
    device = queries.rows(0, 1).device
    return [
        None,
        *(one.over(queries, items, tuple(term.to(device) for term in terms[name])) for name, one in criteria.items()),
    ]


def _name(depth: int, first: int) -> str:
    return f"lists-{depth}-{first}"
