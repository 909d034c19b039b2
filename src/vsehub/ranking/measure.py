"""The plain ranking and any number of corrected rankings, searched and measured in one pass over the scores.

>>> import numpy as np
>>> from vsehub.criteria.csls import CSLS
>>> angles = np.radians([10, 25, 40, 60])
>>> queries = np.stack([np.cos(angles), np.sin(angles)], axis=1)
>>> items = np.array([[1.0, 0.0], [0.9, 0.5], [0.0, 1.0]])
>>> measured = measure(Sides.from_arrays(queries, items), {"csls": CSLS(k=2)}, k=1)
>>> {ranking.name: ranking.positions.flatten().tolist() for ranking in measured.rankings}
{'nns': [0, 1, 1, 1], 'csls': [0, 1, 1, 2]}
>>> [ranking.hubness["largest_hub_1"] for ranking in measured.rankings]
[3.0, 2.0]
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from vsehub.checks import require, whole
from vsehub.criteria.base import Correction, Criterion, Terms, fit_all, require_can_exclude_self
from vsehub.criteria.nns import NearestNeighbor
from vsehub.metrics.occurrences import KS, ItemCounts, count_occurrences, histogram, occurrence_metrics
from vsehub.metrics.ranks import RECALLS, at_r
from vsehub.neighbors.tiles import nearest_blocks
from vsehub.neighbors.topk import Best
from vsehub.positives import Positives
from vsehub.ranking.inputs import Sides

PLAIN = "nns"
# mAP@R and R-Precision need lists as deep as the most positives of a query; deeper lists cost more than the scores.
DEEPEST = 256
# A matching reads all scores several times; beyond this many it takes hours.
MOST_MATCHED = 10**9


@dataclass(frozen=True, eq=False)
class Ranked:
    """One measured ranking.

    values, positions: (Q, k), best first, on the CPU. first_items: (Q, 1), which R@1 counts; a matching has others for
    k = 1 than at the beginning of its lists for k. hubness: see `occurrence_metrics`. histograms: the distribution of
    N_k for each k. truth: "r1", "r5", "r10", "map_r", "r_precision" in % of the queries that have a positive; the
    last two are None if lists are not deep enough for them; None without positives. changed: see `changes`.
    occurrences, wrong: N_k and BN_k at the largest measured k; wrong is None without positives. item_terms: the
    criterion's terms of each item, for an `ItemBias` just the bias (M,).
    """

    name: str
    values: Tensor
    positions: Tensor
    first_items: Tensor
    hubness: dict[str, float]
    histograms: dict[str, dict[str, list[int]]]
    truth: dict[str, float | None] | None
    changed: dict[str, float]
    occurrences: ItemCounts
    wrong: ItemCounts | None
    item_terms: Terms


@dataclass(frozen=True, eq=False)
class Measured:
    """All rankings, the plain one first. ks: the neighbourhood sizes of hubness. seconds: step -> its duration."""

    rankings: list[Ranked]
    ks: tuple[int, ...]
    seconds: dict[str, float]


@torch.no_grad()
def measure(
    sides: Sides, criteria: Mapping[str, Any] | None = None, k: int = 10, device: torch.device | None = None
) -> Measured:
    """Rank by plain inner product and under each criterion, and measure each ranking.

    criteria: name -> criterion. k: the depth of the lists. Metrics against `sides.positives` omit queries without one.
    device: where the scores are computed; None: where the vectors are.

    One product of queries and items serves the plain and all corrected rankings, and one product of reference and items
    all criteria that work column by column. A matching computes its own product for each measured k. Raises InputError
    as `check_criteria`.
    """
    criteria = {name: rule for name, rule in (criteria or {}).items() if not isinstance(rule, NearestNeighbor)}
    check_criteria(criteria, sides, k)
    sides = sides.on(device)
    items, positives = len(sides.items), sides.positives
    depths = sorted({min(depth, items - sides.exclude_self) for depth in (k, *KS, *RECALLS)})
    began = time.perf_counter()
    # Each k is a separate matching: the list for k = 5 is not the beginning of the list for k = 10.
    matchings = {
        name: {depth: match(criterion, sides, depth) for depth in depths}
        for name, criterion in criteria.items()
        if criterion.matching is not None
    }
    matching_end = time.perf_counter()
    streamed = {name: criterion for name, criterion in criteria.items() if name not in matchings}
    corrections = list(streamed.values())
    reference, exclude_self = sides.reference_queries, sides.exclude_self and not sides.inductive
    fitted_terms = (
        fit_all(corrections, sides.items, reference, sides.reference_items, exclude_self) if corrections else []
    )
    terms = dict(zip(streamed, fitted_terms, strict=True))
    fitting_end = time.perf_counter()

    # The depth of lists that mAP@R and R-Precision need; None if it is too large.
    most = 0 if positives is None else int(positives.counts.max())
    relevance_depth = most if 0 < most <= DEEPEST else None
    depth_in_matching = relevance_depth if most <= k else None  # the lists of a matching end at k
    collected = {
        name: _Lists(k, depths, depth_in_matching if name in matchings else relevance_depth, positives)
        for name in (PLAIN, *criteria)
    }
    plain = []
    for first, lists in list_blocks(sides, max(*depths, relevance_depth or 0), corrections, fitted_terms):
        blocks = {name: {k: best} for name, best in zip((PLAIN, *streamed), lists, strict=True)}
        rows = slice(first, first + len(lists[0][0]))
        for name, matching in matchings.items():
            blocks[name] = {depth: (values[rows], positions[rows]) for depth, (values, positions) in matching.items()}
        plain.append(lists[0][1][:, :k].to("cpu", copy=True))  # so that the deeper list is freed
        for name, ranking in collected.items():
            ranking.add(first, blocks[name])
    search_seconds = (matching_end - began) + (time.perf_counter() - fitting_end)  # matching searches too
    seconds = {"reference": fitting_end - matching_end, "search": search_seconds}
    measured = [
        ranking.ranked(name, items, terms.get(name, ()), torch.cat(plain)) for name, ranking in collected.items()
    ]
    return Measured(measured, ks_within(depths[-1]), seconds)


def match(criterion: Criterion, sides: Sides, k: int) -> Best:
    """Values and positions (Q, k) of a criterion that matches queries with items."""
    reference_items = sides.reference_items if criterion.takes_reference_items else None
    return criterion.search(sides.queries, sides.items, k=k, reference_items=reference_items)


def list_blocks(
    sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
) -> Iterator[tuple[int, list[Best]]]:
    """(first query, lists of the plain ranking and of each criterion) for one block of queries at a time.

    terms: the item terms of each criterion. Each of the lists is values and positions (b, depth).
    """
    queries, items = sides.queries, sides.items
    device = queries.rows(0, 1).device
    moved = [tuple(term.to(device) for term in parts) for parts in terms]
    corrections = [
        criterion.tile_correction(queries, items, parts) for criterion, parts in zip(criteria, moved, strict=True)
    ]
    return nearest_blocks(queries, items, depth, [None, *corrections], sides.exclude_self)


def changes(before: Tensor, after: Tensor, first_items: Tensor) -> dict[str, float]:
    """Differences of two rankings (Q, k) of the same queries, -1 behind the end of a list.

    first_items: (Q, 1), those of the second. "first": the share of queries whose first item differs; "overlap": the
    mean share of a list that stays.
    """
    # No list names an item twice, so an item that occurs twice in both lists together is in both.
    together = torch.cat((before, after), dim=1).sort(dim=1).values
    stay = ((together[:, 1:] == together[:, :-1]) & (together[:, 1:] >= 0)).sum(dim=1)
    overlap = (stay.double() / (before >= 0).sum(dim=1)).mean()
    return {"first": (before[:, :1] != first_items).sum().item() / len(before), "overlap": overlap.item()}


def ks_within(items: int) -> tuple[int, ...]:
    """The neighbourhood sizes of `KS` that this number of items allows."""
    return tuple(k for k in KS if k <= items)


def check_criteria(criteria: Mapping[str, Any], sides: Sides, k: int) -> None:
    """Raise InputError for an impossible k, and for criteria that cannot take these sizes or this reference."""
    whole("k", k)
    queries, items = len(sides.queries), len(sides.items)
    most = items - sides.exclude_self
    require(
        k <= most, f"k is {k}; expected at most {most}, the number of {'other ' if sides.exclude_self else ''}items"
    )
    for name, criterion in criteria.items():
        if sides.exclude_self:
            require_can_exclude_self(name, criterion, sides.inductive)
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


class _Lists:
    """The lists of a ranking, collected block by block.

    depths: lengths of the lists that are measured, k among them. relevance_depth: the depth that mAP@R and R-Precision
    need; None: they are not measured.
    """

    def __init__(self, k: int, depths: Sequence[int], relevance_depth: int | None, positives: Positives | None):
        self._k, self._depths, self._relevance_depth, self._positives = k, depths, relevance_depth, positives
        self._blocks = list[list[Tensor]]()
        self._precision = torch.zeros(2, dtype=torch.float64)

    def add(self, first: int, lists: Mapping[int, Best]) -> None:
        """Add the lists of the queries from `first` on.

        lists: for a matching, the list of each depth; otherwise one list under the key k, at least as deep as all
        depths, which is cut to each.
        """
        # A copy, so that the deeper list is freed.
        positions = [lists.get(depth, lists[self._k])[1][:, :depth].to("cpu", copy=True) for depth in self._depths]
        self._blocks.append([lists[self._k][0][:, : self._k].to("cpu", copy=True), *positions])
        if self._positives is not None and self._relevance_depth is not None:
            deep = lists.get(self._relevance_depth, lists[self._k])[1][:, : self._relevance_depth].cpu()
            hits = self._positives.hits(deep, first)
            self._precision += torch.stack(at_r(hits, self._positives.counts[first : first + len(hits)])).sum(dim=1)

    def ranked(self, name: str, items: int, terms: Terms, plain: Tensor) -> Ranked:
        """The measured ranking. plain: the lists of the plain one (Q, k)."""
        values, *parts = (torch.cat(blocks) for blocks in zip(*self._blocks, strict=True))
        lists = dict(zip(self._depths, parts, strict=True))
        positives = self._positives
        counted = {k: count_occurrences(lists[k], items, (k,), positives) for k in ks_within(self._depths[-1])}
        counts = {k: occurrences.counts[k] for k, occurrences in counted.items()}
        wrong = None if positives is None else {k: occurrences.bad[k] for k, occurrences in counted.items()}
        deepest = max(counts)
        return Ranked(
            name=name,
            values=values,
            positions=lists[self._k],
            first_items=lists[1],
            hubness=occurrence_metrics(counts, wrong, counted[1].judged),
            histograms={str(k): histogram(count) for k, count in counts.items()},
            truth=None if positives is None else self._truth(lists, positives),
            changed=changes(plain, lists[self._k], lists[1]),
            occurrences=counts[deepest],
            wrong=None if wrong is None else wrong[deepest],
            item_terms=terms,
        )

    def _truth(self, lists: Mapping[int, Tensor], positives: Positives) -> dict[str, float | None]:
        queries = int((positives.counts > 0).sum())
        answered = {k: int(positives.hits(lists[min(k, self._depths[-1])]).any(dim=1).sum()) for k in RECALLS}
        recalls = {f"r{k}": 100.0 * count / queries for k, count in answered.items()}
        precisions = (None, None) if self._relevance_depth is None else (100.0 * self._precision / queries).tolist()
        return recalls | dict(zip(("map_r", "r_precision"), precisions, strict=True))
