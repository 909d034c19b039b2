"""The data beside a collection that new items need: reference queries, and means of kinds."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail
from vsehub.criteria.base import Correction, ItemBias, fit_all
from vsehub.neighbors.kinds import KindMeans
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled
from vsehub.serving.databases.base import Database, ItemRows
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.facts import Facts, mark_of_beside, require_beside

KEPT = 20_000  # reference queries stored at most; of more a sample
CALIBRATED = 1000  # items whose bias from the stored queries is compared with their own
BLOCK = 10_000  # reference queries stored at a time
_WIDTH = 1000  # numbers in a row


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


def numbers_beside(database: Database, place: Place) -> Database:
    """The collection of the means of kinds of another collection."""
    return database.beside(f"{place.name}_num")


def forget(database: Database, place: Place) -> None:
    """Remove what is beside a collection. Raises InputError if vsehub did not store it."""
    for name in (f"{place.name}_ref", f"{place.name}_num"):
        one = database.beside(name)
        if one.shape() is not None:
            require_beside(one.facts(), place.name, f"{name} at {place.uri}")
            one.drop()


def keep(database: Database, place: Place, facts: Facts, kept: Kept | None, means: KindMeans | None = None) -> None:
    """Store reference and means beside a collection, and replace those of an earlier attempt."""
    forget(database, place)
    mark = mark_of_beside(place.name)
    if kept is not None:
        reference = reference_beside(database, place)
        reference.create(facts.dim, mark)
        for first in range(0, len(kept.reference), BLOCK):
            rows = kept.reference[first : first + BLOCK].float().numpy()
            reference.put(ItemRows([str(row) for row in range(first, first + len(rows))], rows))
        reference.finish(approximate=False)
    if means is not None:
        numbers = numbers_beside(database, place)
        numbers.create(_WIDTH, mark)
        for name, one in zip(_mean_names(means.names), [*means.means, means.query_mean], strict=True):
            numbers.put(_as_rows(name, one))
        numbers.finish(approximate=False)


def read_kept(database: Database, place: Place, facts: Facts) -> Kept:
    """The reference stored beside a collection. Raises InputError if parts are missing."""
    count, dim = facts.reference_rows, facts.dim
    parts = [rows for rows in _read(reference_beside(database, place)) if rows.vectors.shape[1:] == (dim,)]
    rows = {one: vector for part in parts for one, vector in zip(part.ids, part.vectors, strict=True)}
    names = map(str, range(min(count, 2 * len(rows))))  # the facts may claim any count
    held = [rows[one] for one in names if one in rows and np.isfinite(rows[one]).all()]
    if not 0 < len(held) == count == len(rows):
        _lost(f"of the {count} reference queries beside {place.address} {len(held)} are there")
    return Kept(torch.from_numpy(np.stack(held)), facts.shift)


def read_means(database: Database, place: Place, facts: Facts) -> KindMeans | None:
    """The means stored beside a collection; None if it has none. Raises InputError if parts are missing."""
    if facts.kinds is None:
        return None
    numbers = _read_numbers(database, place)
    found = [_numbers(numbers, name, facts.dim) for name in _mean_names(facts.kinds.names)]
    whole = [one.float() for one in found if one is not None]
    if len(whole) < len(found):
        _lost(f"the means of the kinds of items beside {place.address} are lost or damaged")
    return KindMeans(facts.kinds.names, torch.stack(whole[:-1]), whole[-1], facts.kinds.unit)


def _mean_names(kinds: Sequence[str]) -> list[str]:
    """The names under which the means of kinds (K,), then that of the queries, are stored."""
    return [*(f"mean {number}" for number in range(len(kinds))), "query mean"]


def _read_numbers(database: Database, place: Place) -> dict[str, np.ndarray]:
    """The rows of the collection of numbers by their ids."""
    return {one: vector for part in _read(numbers_beside(database, place)) for one, vector in _named(part)}


def _lost(what: str) -> NoReturn:
    fail(f"index_uri: {what}; fill it again with overwrite=true")


def _read(database: Database) -> Iterator[ItemRows]:
    return iter(()) if database.shape() is None else (rows for rows in database.read() if len(rows.ids))


def _named(rows: ItemRows) -> Iterator[tuple[str, np.ndarray]]:
    return zip(rows.ids, rows.vectors, strict=True)


def _as_rows(name: str, numbers: Tensor) -> ItemRows:
    """Numbers (R,) as rows of 1,000, the last filled up with zeros."""
    wide = np.zeros((-(-len(numbers) // _WIDTH), _WIDTH), np.float32)
    wide.ravel()[: len(numbers)] = numbers.cpu().numpy()
    return ItemRows([f"{name} {row}" for row in range(len(wide))], wide)


def _numbers(rows: dict[str, np.ndarray], name: str, count: int) -> Tensor | None:
    """The numbers (R,) of that name; None if one is missing or not finite."""
    wanted = [rows.get(f"{name} {row}") for row in range(-(-count // _WIDTH))]
    whole = [row for row in wanted if row is not None and row.shape == (_WIDTH,)]
    found = np.concatenate(whole)[:count] if len(whole) == len(wanted) else np.full(1, np.nan)
    return torch.from_numpy(found).double() if np.isfinite(found).all() else None
