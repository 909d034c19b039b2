"""What computes item terms and lists: this process (`Local`) or the workers of a cluster (`Distributed`).

`Resumable` wraps either of the two, and stores the results in a folder.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, Self

import torch

from vsehub.checks import require
from vsehub.criteria.base import Correction, Criterion, Terms, fit_all
from vsehub.data.vectors.embeddings import Norms, VectorFile, look_through
from vsehub.metrics.topk import Best
from vsehub.neighbors.rounded import RoundedVectors, uses_bf16
from vsehub.neighbors.tiles import TileCorrection, nearest_blocks
from vsehub.rerank.parts import Parts, Pieces
from vsehub.rerank.sides import Sides

log = logging.getLogger(__name__)


class Engine(Protocol):
    """What computes a comparison.

    device: where it computes. rounded: whether lists are those of vectors rounded to bfloat16. spared: the seconds that
    an earlier command spent on the results found in the store. settings: JSON of what the results depend on.
    keeps_terms: whether the engine itself stores item terms in parts.
    """

    @property
    def device(self) -> torch.device | None: ...

    @property
    def rounded(self) -> bool: ...

    @property
    def spared(self) -> float: ...

    @property
    def settings(self) -> dict[str, Any]: ...

    @property
    def keeps_terms(self) -> bool: ...

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError for a criterion, or sides, that this engine cannot take."""

    def keeping(self, parts: Parts) -> "Engine":
        """This engine, continuing from the results in `parts` and storing new ones there."""

    def look_through(self, vectors: VectorFile) -> Norms:
        """The norms of all rows; see `embeddings.look_through`."""

    def item_terms(self, name: str, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """`fit_all` of criteria that share a pass: those that work column by column, or a single other criterion.

        name: of the stored result.
        """

    def matched(self, name: str, criterion: Criterion, sides: Sides, k: int) -> Best:
        """Values and positions (Q, k) of a criterion that matches queries with items."""

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms], start: int = 0
    ) -> Iterator[tuple[int, list[Best]]]:
        """(first query, lists of the plain ranking and of each criterion) for one block of queries at a time.

        terms: the item terms of each criterion. Each of the lists is values and positions (b, depth). start: the first
        query of the first block.
        """


@dataclass(frozen=True)
class Local:
    """The engine of this process. device: where blocks are computed; None: where the vectors are."""

    device: torch.device | None = None
    rounded: bool = False
    keeps_terms: ClassVar[bool] = False
    spared: ClassVar[float] = 0.0
    fetched: ClassVar[bool] = True

    @classmethod
    def of(cls, device: torch.device, precision: str, criteria: Mapping[str, Criterion], given: bool) -> Self:
        """The engine on a device, with a precision of `uses_bf16`. given: whether scores are given.

        Raises InputError for bf16 where scores cannot be rounded.
        """
        return cls(device, uses_bf16(precision, device.type, float32_only(criteria, given)))

    @contextmanager
    def started(self) -> Iterator[tuple[Self, dict[str, Any]]]:
        """The engine, and its part of a record."""
        yield self, {"name": "local"}

    @property
    def settings(self) -> dict[str, Any]:
        """The type of the device, and the precision if scores are rounded."""
        device = {"device": "cpu" if self.device is None else self.device.type}
        return device | ({"precision": "bf16"} if self.rounded else {})

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """Raise InputError if a criterion does not allow rounded scores."""
        obstacle = float32_only(criteria, sides.given)
        require(not self.rounded or obstacle is None, f"bf16: {obstacle}")

    def keeping(self, parts: Parts) -> "Resumable":
        """This engine with a store for its results."""
        return Resumable(self, parts)

    def look_through(self, vectors: VectorFile) -> Norms:
        """See `Engine`."""
        return look_through(vectors)

    def item_terms(self, name: str, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """See `Engine`. Terms are float32 where scores are rounded, too."""
        here = sides.on(self.device)
        return fit_all(criteria, here.items, here.seen, here.reference_items)

    def matched(self, name: str, criterion: Criterion, sides: Sides, k: int) -> Best:
        """See `Engine`."""
        here = sides.on(self.device)
        bank = here.reference_items if criterion.takes_reference_items else None
        values, positions = criterion.search(here.queries, here.items, k=k, reference_items=bank)
        return values, positions

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms], start: int = 0
    ) -> Iterator[tuple[int, list[Best]]]:
        """See `Engine`."""
        here = sides.on(self.device)
        device = here.queries.rows(0, 1).device
        items = RoundedVectors(here.items) if self.rounded else here.items
        corrections: list[TileCorrection | None] = [None]
        for criterion, own in zip(criteria, terms, strict=True):
            corrections.append(criterion.over(here.queries, items, tuple(term.to(device) for term in own)))
        return nearest_blocks(here.queries, items, depth, corrections, start=start)


class Resumable:
    """An engine with a store: results in `parts` are not computed again."""

    def __init__(self, engine: Engine, parts: Parts):
        self._engine, self._parts = engine, parts
        self.device, self.rounded, self.settings = engine.device, engine.rounded, engine.settings
        self.spared, self.keeps_terms = 0.0, True

    def require(self, criteria: Mapping[str, Criterion], sides: Sides) -> None:
        """See `Engine`."""
        self._engine.require(criteria, sides)

    def keeping(self, parts: Parts) -> "Engine":
        """The engine with another store."""
        return self._engine.keeping(parts)

    def look_through(self, vectors: VectorFile) -> Norms:
        """See `Engine`; the result is not stored."""
        return self._engine.look_through(vectors)

    def item_terms(self, name: str, criteria: Sequence[Correction], sides: Sides) -> list[Terms]:
        """See `Engine`."""
        if self._engine.keeps_terms:
            return self._engine.item_terms(name, criteria, sides)
        return self._kept(f"terms-{name}", lambda: self._engine.item_terms(name, criteria, sides))

    def matched(self, name: str, criterion: Criterion, sides: Sides, k: int) -> Best:
        """See `Engine`."""
        ((values, positions),) = self._kept(
            f"matched-{name}-{k}", lambda: [self._engine.matched(name, criterion, sides, k)]
        )
        return values, positions

    def list_blocks(
        self, sides: Sides, depth: int, criteria: Sequence[Correction], terms: Sequence[Terms], start: int = 0
    ) -> Iterator[tuple[int, list[Best]]]:
        """See `Engine`. Stored blocks come first."""
        while start < len(sides.queries):
            stored = self._parts.get(f"lists-{depth}-{start}")
            if stored is None:
                break
            lists, seconds = stored
            self.spared += seconds
            found = [(values, positions) for values, positions in lists]
            yield start, found
            start += len(found[0][0])
        if start == len(sides.queries):
            return
        if start:
            log.info("continuing from query %d of %d", start, len(sides.queries))
        blocks = self._engine.list_blocks(sides, depth, criteria, terms, start)
        began = time.perf_counter()
        for first, lists_ in blocks:
            here = [(values.cpu(), positions.cpu()) for values, positions in lists_]
            self._parts.put(f"lists-{depth}-{first}", [*here], time.perf_counter() - began)
            yield first, here
            began = time.perf_counter()

    def _kept(self, name: str, compute: Callable[[], Pieces]) -> Pieces:
        stored = self._parts.get(name)
        if stored is not None:
            pieces, seconds = stored
            self.spared += seconds
            return pieces
        began = time.perf_counter()
        pieces = compute()
        self._parts.put(name, pieces, time.perf_counter() - began)
        return pieces


def float32_only(criteria: Mapping[str, Any], given: bool) -> str | None:
    """The reason against scores of rounded vectors; None if they are possible. given: whether scores are given."""
    if given:
        return "scores are given, which are taken as they are"
    matching = next((name for name, criterion in criteria.items() if criterion.matching is not None), None)
    return None if matching is None else f"{matching} matches queries and items with each other, in float32 only"
