"""The engines that compute item terms and lists: this process (`Local`) or tasks of a Ray cluster (`ray.Sharded`)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch

from vsehub.checks import require
from vsehub.criteria.base import Correction, Criterion, Terms, fit_all
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through
from vsehub.metrics.topk import Best
from vsehub.neighbors.rounded import RoundedVectors, uses_bf16
from vsehub.neighbors.tiles import TileCorrection, nearest_blocks
from vsehub.ranking.inputs import Sides


class Engine(Protocol):
    """The interface of an engine, which computes a comparison.

    device: where it computes. rounded: whether lists are those of vectors rounded to bfloat16. told: its part of
    a record.
    """

    @property
    def told(self) -> dict[str, Any]: ...

    @property
    def device(self) -> torch.device | None: ...

    @property
    def rounded(self) -> bool: ...

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
    rounded: bool = False

    @classmethod
    def of(cls, device: torch.device, precision: str, criteria: Mapping[str, Criterion], given: bool) -> Self:
        """The engine on a device, with a precision of `uses_bf16`. given: whether the inputs are precomputed scores.

        Raises InputError for bf16 if scores cannot be rounded.
        """
        return cls(device, uses_bf16(precision, device.type, float32_only(criteria, given)))

    @property
    def told(self) -> dict[str, Any]:
        """Its part of a record."""
        return {"name": "local"}

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError if a criterion does not allow rounded scores."""
        obstacle = float32_only(criteria, sides.given)
        require(not self.rounded or obstacle is None, f"bf16: {obstacle}")

    def look_through(self, vectors: VectorFile) -> Norms:
        """Return the norms of all rows."""
        return look_through(vectors)

    def item_terms(self, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """Return the terms of all items, for each criterion; float32 even if scores are rounded."""
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
        items = RoundedVectors(here.items) if self.rounded else here.items
        corrections: list[TileCorrection | None] = [None]
        for criterion, own in zip(criteria, terms, strict=True):
            corrections.append(criterion.over(here.queries, items, tuple(term.to(device) for term in own)))
        return nearest_blocks(here.queries, items, depth, corrections)


def float32_only(criteria: Mapping[str, Any], given: bool) -> str | None:
    """The reason against scores of rounded vectors; None if they are possible. given: whether scores are given."""
    if given:
        return "scores are given, which are taken as they are"
    matching = next((name for name, criterion in criteria.items() if criterion.matching is not None), None)
    return None if matching is None else f"{matching} matches queries and items with each other, in float32 only"
