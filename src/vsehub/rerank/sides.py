"""The sides of a comparison of rankings: queries, items, and the vectors and answers that go with them."""

from dataclasses import dataclass, replace
from typing import Any, Self

import torch

from vsehub.checks import require
from vsehub.criteria.base import as_sides
from vsehub.metrics.positives import Positives
from vsehub.neighbors.given import UnitVectors, moved
from vsehub.neighbors.vectors import VectorSource, as_vectors


@dataclass(frozen=True, eq=False)
class Sides:
    """Checked sides of a comparison; make one by `Sides.of`.

    reference: other queries, from which criteria are fitted; None: the queries themselves (transductive).
    reference_items: for criteria that take them; None: the items themselves. positives: which items answer which query;
    None: unknown.
    """

    queries: VectorSource
    items: VectorSource
    reference: VectorSource | None = None
    reference_items: VectorSource | None = None
    positives: Positives | None = None

    @classmethod
    def of(
        cls,
        queries: Any,
        items: Any,
        reference: Any = None,
        reference_items: Any = None,
        positives: Positives | None = None,
    ) -> Self:
        """Sides (Q, D), (M, D), (R, D), (G, D): tensors, numpy arrays, memory maps, or open files (`data.vectors`).

        Instead of vectors, `GivenScores` are queries and reference, and `UnitVectors` are items. Raises InputError if
        dimensions differ, a side is empty or positives are those of other sizes.
        """
        asked, among, seen = as_sides(queries, items, reference)
        bank = None
        if reference_items is not None:
            bank = as_vectors("reference_items", reference_items, columns=among.shape[1])
        require(
            positives is None or (positives.queries, positives.items) == (len(asked), len(among)),
            f"positives is of another number of queries or items; expected {len(asked)} queries and {len(among)} items",
        )
        return cls(asked, among, None if reference is None else seen, bank, positives)

    @property
    def inductive(self) -> bool:
        """Whether criteria are fitted from queries other than the ranked ones."""
        return self.reference is not None

    @property
    def given(self) -> bool:
        """Whether scores are given instead of vectors."""
        return isinstance(self.items, UnitVectors)

    @property
    def seen(self) -> VectorSource:
        """The queries from which criteria are fitted."""
        return self.queries if self.reference is None else self.reference

    def on(self, device: torch.device | None) -> Self:
        """The same sides with queries and reference on a device, where scores are then computed; None: unchanged."""
        if device is None:
            return self
        reference = None if self.reference is None else moved(self.reference, device)
        return replace(self, queries=moved(self.queries, device), reference=reference)
