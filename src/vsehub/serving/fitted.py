"""The state of a fitted search: what it ranks with, and the same with items that come or go."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import require
from vsehub.criteria.base import Criterion, Terms, fit_all, joined
from vsehub.criteria.choose import Choice, Tried
from vsehub.neighbors.screened import KeptItems
from vsehub.neighbors.vectors import BLOCK, Chosen, Concatenated, VectorSource, as_vectors
from vsehub.serving.calibration import Calibration
from vsehub.serving.given import checked_ids


@dataclass(frozen=True)
class Fitted:
    """What a `CorrectedSearch` searches; it never changes, so that searches and changes can run side by side.

    criterion; items (M, D); reference (R, D) and terms (M,), None without a reference; ids, M texts or None; tried,
    what `tune` looked at, or None; calibration of these items under this criterion, or None; tuned_by, the
    digests of the queries with answers that `tune` was given, or None.
    """

    criterion: Criterion
    items: VectorSource
    reference: VectorSource | None
    terms: Terms | None
    ids: list[str] | None
    tried: Sequence[Tried] | None = None
    calibration: Calibration | None = None
    tuned_by: np.ndarray | None = None

    @cached_property
    def searched(self) -> VectorSource:
        """The items as they are searched; they stay rounded from one search to the next."""
        return KeptItems(self.items)

    def ranked(self, asked: VectorSource, k: int) -> tuple[Tensor, Tensor]:
        """Values and positions (Q, k) of queries."""
        criterion, correction, device = self.criterion, self.criterion.correction, asked.rows(0, 0).device
        alone = criterion is correction and not correction.needs_reference
        if self.terms is None and not alone:
            return criterion.search(asked, self.searched, None, k)
        terms = tuple(term.to(device) for term in self.terms or ())
        return correction.search_fitted(asked, self.searched, terms, k)

    def tuned(self, choice: Choice, tuned_by: np.ndarray) -> Self:
        """The same under the chosen criterion. tuned_by: see the class."""
        criterion = choice.criterion
        terms = None if self.reference is None else fit_all([criterion], self.items, self.reference)[0]
        tuned = replace(self, criterion=criterion, terms=terms, tried=choice.tried, calibration=None)
        return replace(tuned, tuned_by=tuned_by)

    def with_more(self, new: VectorSource, ids: Sequence[str] | None = None) -> Self:
        """The same with items (m, D) after those there are. Raises InputError as `add`."""
        everyone = _with_ids(self.ids, ids, len(new))
        terms = self.terms
        if terms is not None and self.reference is not None:
            self._require_independent("add")
            terms = joined([terms, *fit_all([self.criterion.correction], new, self.reference)])
        return replace(self, items=_appended(self.items, new), terms=terms, ids=everyone, calibration=None)

    def without(self, ids: Sequence[str] | Sequence[int]) -> Self:
        """The same without some items. Raises InputError as `remove`."""
        gone = _places(ids, self.ids, len(self.items))
        require(len(gone) < len(self.items), f"remove: all {len(gone)} items were named; expected some to be left")
        stay = torch.ones(len(self.items), dtype=torch.bool)
        stay[gone] = False
        left, terms = stay.nonzero()[:, 0], self.terms
        if terms is not None and self.reference is not None:
            self._require_independent("remove")
            terms = tuple(term[left.to(term.device)] for term in terms)
        names = None if self.ids is None else [self.ids[place] for place in left.tolist()]
        return replace(self, items=_remaining(self.items, stay), terms=terms, ids=names, calibration=None)

    def _require_independent(self, change: str) -> None:
        """Raise InputError for a criterion under which the terms of an item depend on the other items."""
        require(
            self.criterion.correction.independent,
            f"{change}: under {self.criterion!r} an item's terms depend on the other items; fit anew with all items",
        )


def _parts(items: VectorSource) -> list[VectorSource]:
    return list(items.parts) if isinstance(items, Concatenated) else [items]


def _appended(items: VectorSource, new: VectorSource) -> Concatenated:
    """Items and new ones. Small blocks grow together: n additions leave about log2(n) blocks to look through."""
    parts = [*_parts(items), new]
    while len(parts) > 1 and len(parts[-2]) < 2 * len(parts[-1]) and len(parts[-2]) + len(parts[-1]) <= BLOCK:
        last = Concatenated(parts[-2:])
        parts[-2:] = [as_vectors("items", last.rows(0, len(last)))]
    return Concatenated(parts)


def _remaining(items: VectorSource, stay: Tensor) -> VectorSource:
    """The items (M, D) for which `stay` (M,) is true; blocks of which nothing is removed are the same."""
    left: list[VectorSource] = []
    first = 0
    for part in _parts(items):
        here = stay[first : first + len(part)]
        first += len(part)
        if here.all():
            left.append(part)
        elif here.any():
            chosen = Chosen(part, here.nonzero()[:, 0].tolist())
            small = len(part) <= BLOCK
            left.append(as_vectors("items", chosen.rows(0, len(chosen))) if small else chosen)
    return Concatenated(left)


def _places(ids: Any, known: list[str] | None, count: int) -> Tensor:
    """The positions (n,) of items that are named by their ids, or by their positions if they have no ids."""
    listed = isinstance(ids, list | tuple | np.ndarray | Tensor)
    given = list(ids.tolist() if isinstance(ids, np.ndarray | Tensor) else ids) if listed else []
    wanted = [one.item() if isinstance(one, np.generic) else one for one in given]
    kind, what = (
        (str, "ids, texts") if known is not None else (int, "positions, whole numbers, since items have no ids")
    )
    require(
        listed and len(wanted) > 0 and all(isinstance(one, kind) and not isinstance(one, bool) for one in wanted),
        f"remove: {ids!r:.60} was given; expected a list of {what}",
    )
    require(len(set(wanted)) == len(wanted), "remove: an item is named twice; name each once")
    asked = set(wanted)
    if known is not None:
        places = [place for place, one in enumerate(known) if one in asked]
        absent = sorted(asked.difference(known[place] for place in places))
    else:
        places = [one for one in wanted if 0 <= one < count]
        absent = sorted(asked.difference(places))
    require(not absent, f"remove: {len(absent)} of {len(wanted)} are not among the items, {absent[:1]} for example")
    return torch.tensor(places)


def _with_ids(known: list[str] | None, ids: Sequence[str] | None, rows: int) -> list[str] | None:
    """The ids of all items when these are added."""
    require(
        (ids is None) == (known is None),
        "ids: the items that are there have "
        + ("none; leave ids out, or fit with ids" if known is None else "ids; give one for each new item too"),
    )
    if ids is None or known is None:
        return None
    new = checked_ids(ids, rows)
    there = set(new).intersection(known)
    require(not there, f"ids: {sorted(there)[:1]} are there already; remove them first, or give others")
    return [*known, *new]
