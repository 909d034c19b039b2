"""The reference queries beside a collection, which new items need."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail
from vsehub.criteria.base import Correction, ItemBias, fit_all
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled
from vsehub.serving.databases.base import Database, ItemRows
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.facts import Facts, mark_of_beside, require_beside

KEPT = 20_000  # reference queries stored at most; of more a sample
CALIBRATED = 1000  # items whose bias from the stored queries is compared with their own
BLOCK = 10_000  # reference queries stored at a time


@dataclass(frozen=True)
class Kept:
    """The source of a new item's bias.

    reference: queries (R, D). shift: added to every bias computed from these queries.
    """

    reference: Tensor
    shift: float = 0.0

    @classmethod
    def of(
        cls,
        criterion: Correction,
        items: VectorSource,
        bias: Tensor,
        reference: VectorSource,
        seed: int = 0,
    ) -> Self | None:
        """The data to store beside items (M, D) with their bias (M,); None if new items cannot get a bias.

        reference: all queries; of more than 20,000 some are drawn by seed. A sample of queries gives smaller sums and
        farther nearest queries: the shift is the mean difference over some of the items.
        """
        if not (isinstance(criterion, ItemBias) and criterion.needs_reference):
            return None
        rows, _ = sampled(reference, KEPT, seed)
        found = cls(rows.cpu())
        if len(rows) == len(reference) or not criterion.independent:
            return found
        some, positions = sampled(items, CALIBRATED, seed)
        again = found.bias(criterion, as_vectors("items", some))
        return replace(found, shift=float((bias.cpu()[positions].double() - again.double()).mean()))

    def bias(self, criterion: ItemBias, items: VectorSource) -> Tensor:
        """The bias (n,) of items (n, D) that join a collection."""
        return fit_all([criterion], items, as_vectors("reference", self.reference))[0][0].cpu() + self.shift


def reference_beside(database: Database, place: Place) -> Database:
    """The collection of the reference queries of another collection."""
    return database.beside(f"{place.name}_ref")


def forget(database: Database, place: Place) -> None:
    """Remove the reference beside a collection. Raises InputError if vsehub did not store it."""
    reference = reference_beside(database, place)
    if reference.shape() is not None:
        require_beside(reference.facts(), place.name, f"{place.name}_ref at {place.uri}")
        reference.drop()


def keep(database: Database, place: Place, facts: Facts, kept: Kept | None) -> None:
    """Store the reference beside a collection, and replace that of an earlier attempt."""
    forget(database, place)
    if kept is not None:
        reference = reference_beside(database, place)
        reference.create(facts.dim, mark_of_beside(place.name))
        for first in range(0, len(kept.reference), BLOCK):
            rows = kept.reference[first : first + BLOCK].float().numpy()
            reference.put(ItemRows([str(row) for row in range(first, first + len(rows))], rows))
        reference.finish(approximate=False)


def read_kept(database: Database, place: Place, facts: Facts) -> Kept:
    """The reference stored beside a collection. Raises InputError if parts are missing."""
    count, dim = facts.reference_rows, facts.dim
    parts = [rows for rows in _read(reference_beside(database, place)) if rows.vectors.shape[1:] == (dim,)]
    rows = {one: vector for part in parts for one, vector in zip(part.ids, part.vectors, strict=True)}
    names = map(str, range(min(count, 2 * len(rows))))  # the facts may claim any count
    held = [rows[one] for one in names if one in rows and np.isfinite(rows[one]).all()]
    if not 0 < len(held) == count == len(rows):
        fail(
            f"index_uri: of the {count} reference queries beside {place.address} {len(held)} are there; fill it again "
            "with overwrite=true"
        )
    return Kept(torch.from_numpy(np.stack(held)), facts.shift)


def _read(database: Database) -> Iterator[ItemRows]:
    return iter(()) if database.shape() is None else (rows for rows in database.read() if len(rows.ids))
