"""Choosing a criterion's settings by the recall of queries with known answers."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Correction, fit_all
from vsehub.metrics.positives import Positives
from vsehub.metrics.relevance import RECALLS
from vsehub.neighbors.tiles import nearest
from vsehub.neighbors.vectors import VectorSource, as_vectors, row_digests

# With fewer, one query moves R@1 by more than five points, as much as a correction gains.
LEAST_QUERIES = 20
FOLDS = 5


class Tried(NamedTuple):
    """Settings that were tried, and their recalls in % of the queries with a known answer."""

    settings: dict[str, Any]
    r1: float
    r5: float
    r10: float


@dataclass(frozen=True)
class Chosen:
    """The best settings, and all that were tried in the order of the grid."""

    settings: dict[str, Any]
    tried: list[Tried]


def chosen_by_grid(
    criterion: Correction, queries: VectorSource, items: VectorSource, positives: Positives, reference: Any = None
) -> Chosen:
    """The settings of the criterion's GRID with the largest R@1, of equal ones with the largest R@5 + R@10.

    reference: (R, D) queries; None: the queries themselves (transductive). If it holds queries bit for bit, the queries
    are split into `FOLDS` folds, and each fold is searched with a reference from which its own queries are left out.
    Raises InputError if the criterion has no settings, if fewer than `LEAST_QUERIES` queries have an answer, and where
    leaving out leaves no reference.
    """
    require(bool(criterion.GRID), f"{type(criterion).__name__} has no settings to tune; leave tune out")
    known = int((positives.counts > 0).sum())
    require(
        known >= LEAST_QUERIES,
        f"truth: {known} queries have a known answer; expected at least {LEAST_QUERIES} to tune on. Give more, or keep "
        "the settings that the criterion has",
    )
    grid = criterion.grid()
    candidates = [criterion.with_parameters(**settings) for settings in grid]
    depth = min(max(RECALLS), len(items))
    lists = torch.empty(len(grid), len(queries), depth, dtype=torch.int64)
    for rows, asked, seen in _folds(queries, reference):
        terms = fit_all(candidates, items, seen)
        corrections = [one.over(asked, items, own) for one, own in zip(candidates, terms, strict=True)]
        for own, (_, positions) in zip(lists, nearest(asked, items, depth, corrections), strict=True):
            own[rows] = positions.cpu()
    found = [_found(own, positives) for own in lists]
    tried = [
        Tried(settings, *(100.0 * count / known for count in counts))
        for settings, counts in zip(grid, found, strict=True)
    ]
    best = max(range(len(grid)), key=lambda place: (found[place][0], sum(found[place][1:])))
    return Chosen(grid[best], tried)


def _found(positions: Tensor, positives: Positives) -> list[int]:
    """How many queries have an answer among the first 1, 5 and 10 of their items (Q, k)."""
    hits = positives.hits(positions)
    return [int(hits[:, :k].any(dim=1).sum()) for k in RECALLS]


def _folds(queries: VectorSource, reference: Any) -> Iterator[tuple[Tensor, VectorSource, VectorSource]]:
    """For each fold the rows of its queries, these queries, and the reference without them."""
    everything = torch.arange(len(queries))
    if reference is None:
        yield everything, queries, queries
        return
    own, theirs = row_digests(queries), row_digests(reference)
    if not np.isin(own, theirs).any():
        yield everything, queries, reference
        return
    distinct, group = np.unique(own, return_inverse=True)  # copies of a query are in one fold
    drawn = torch.randperm(len(distinct), generator=torch.Generator().manual_seed(0)).numpy()
    asked, seen = queries.rows(0, len(queries)), reference.rows(0, len(reference))
    for fold in range(min(FOLDS, len(distinct))):
        rows = torch.from_numpy(np.flatnonzero(drawn[group] % FOLDS == fold))
        kept = torch.from_numpy(np.flatnonzero(~np.isin(theirs, own[rows])))
        require(
            len(kept) > 0,
            "reference: it holds no query but those that are tuned on and left out; give other queries besides",
        )
        yield (
            rows,
            as_vectors("queries", asked[rows.to(asked.device)]),
            as_vectors("reference", seen[kept.to(seen.device)]),
        )
