"""The engines that compute item terms and lists: this process (`Local`) or tasks of a Ray cluster (`ray.Sharded`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from vsehub.criteria.base import Correction, Criterion, Terms, fit_all
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through
from vsehub.metrics.topk import Best
from vsehub.neighbors.tiles import TileCorrection, nearest_blocks
from vsehub.ranking.inputs import Sides


class Engine(Protocol):
    """The interface of an engine, which computes a comparison.

    told: its part of a record.
    """

    @property
    def told(self) -> dict[str, Any]: ...

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion, or sides, that this engine cannot take."""

    def look_through(self, vectors: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """`fit_all` of criteria that share a pass: those that work column by column, or a single other criterion."""

    def matched(self, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Values and positions (Q, k) of a criterion that matches queries with items."""

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
    ) -> Iterator[tuple[int, list[Best]]]:
        """(first query, lists of the plain ranking and of each criterion) for one block of queries at a time.

        terms: the item terms of each criterion. Each of the lists is values and positions (b, depth).
        """


@dataclass(frozen=True)
class Local:
    """The engine of this process. device: where blocks are computed; None: where the vectors are."""

    device: torch.device | None = None

    @property
    def told(self) -> dict[str, Any]:
        """Its part of a record."""
        return {"name": "local"}

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Return nothing: this engine takes all criteria and sides."""

    def look_through(self, vectors: VectorFile) -> Norms:
        """Return the norms of all rows."""
        return look_through(vectors)

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """Return the terms of all items, for each criterion."""
        here = sides.on(self.device)
        return fit_all(criteria, here.items, here.seen, here.reference_items)

    def matched(self, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Return values and positions (Q, k) of the matching."""
        here = sides.on(self.device)
        bank = here.reference_items if criterion.takes_reference_items else None
        values, positions = criterion.search(here.queries, here.items, k=k, reference_items=bank)
        return values, positions

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms]
    ) -> Iterator[tuple[int, list[Best]]]:
        """Yield the lists of the plain ranking and of each criterion, for one block of queries at a time."""
        here = sides.on(self.device)
        device = here.queries.rows(0, 1).device
        corrections: list[TileCorrection | None] = [None]
        for criterion, own in zip(criteria, terms, strict=True):
            corrections.append(criterion.over(here.queries, here.items, tuple(term.to(device) for term in own)))
        return nearest_blocks(here.queries, here.items, depth, corrections)
