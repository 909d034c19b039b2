"""A collection whose items come and go: biases of new items, drift, and which results to believe."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsehub.checks import fail, require
from vsehub.criteria import Sinkhorn
from vsehub.criteria.base import ItemBias
from vsehub.neighbors.kinds import KindMeans, Kinds
from vsehub.neighbors.tiles import score_columns
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled
from vsehub.serving.calibration import Calibration, stored
from vsehub.serving.corrected import last_components
from vsehub.serving.databases.base import Database, ItemRows
from vsehub.serving.databases.collection import Items, put_in, require_shape, with_last
from vsehub.serving.databases.columns import with_kinds
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.facts import Facts
from vsehub.serving.databases.kept import Kept, keep_masses, read_kept, read_means
from vsehub.serving.estimator import named_criterion, plain_settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

DUE = 0.1  # share of queries with another first item at which `add` advises to fill the collection anew
ASKED, DEEP = 500, 10  # reference queries, and items of each, by which the drift is estimated
_LEAST = 1e-6  # least mass of a query, so that rounding leaves none at 0 when items are removed


@dataclass(frozen=True)
class Drift:
    """The difference of a collection from a newly filled one.

    queries: the number of reference queries compared. changed: the share of these with another first item.
    """

    queries: int
    changed: float

    @property
    def due(self) -> bool:
        """Whether the collection should be filled anew."""
        return self.changed >= DUE


class FoundItem(NamedTuple):
    """An item that a search found. score: under the collection's criterion."""

    id: str
    label: str
    score: float


class Living:
    """A finished collection of vsehub, open to be changed and read."""

    def __init__(self, database: Database, place: Place, facts: Facts):
        self.database, self.place, self.facts = database, place, facts

    def __len__(self) -> int:
        return self.database.count()

    @cached_property
    def criterion(self) -> ItemBias:
        """The criterion that the facts name. Raises InputError if they contradict each other."""
        found = named_criterion(self.facts.criterion, plain_settings(self.facts.parameters))
        if not isinstance(found, ItemBias) or found.scale != self.facts.scale:
            fail(
                f"index_uri: the facts of {self.place.address} contradict each other; fill it again with overwrite=true"
            )
        return found

    @cached_property
    def kept(self) -> Kept:
        """The reference stored beside the collection. Raises InputError if parts are missing."""
        return read_kept(self.database, self.place, self.facts, self.coupled)

    @cached_property
    def means(self) -> KindMeans | None:
        """The means that the stored vectors are without, or None. Raises InputError if parts are missing."""
        return read_means(self.database, self.place, self.facts)

    def without_mean(self, queries: VectorSource) -> VectorSource:
        """Queries (Q, D), as they were given, as this collection ranks them: without the stored mean of the queries."""
        return queries if self.means is None else self.means.queries(queries)

    @property
    def coupled(self) -> bool:
        """Whether an item's bias depends on the other items, so that masses are stored and updated."""
        return isinstance(self.criterion, Sinkhorn) and self.facts.reference_rows > 0

    def _asked(self, rows: Tensor) -> np.ndarray:
        """Queries (Q, D) as the database is asked for the corrected ranking."""
        return with_last(rows, torch.ones(len(rows)))

    def search(self, queries: VectorSource, k: int = 10, accept: float | None = None) -> list[list[FoundItem]]:
        """The k best items of each query (Q, D) under the collection's criterion, best first.

        Queries are normalised if the items were, and lose the stored mean of the queries if there is one. accept: a
        rate of `vsehub calibrate`; lists whose first item is not accepted at it are empty. Raises InputError as
        `threshold`.
        """
        least = -np.inf if accept is None else self.threshold(accept)
        rows = queries.rows(0, len(queries)).float()
        asked = self.without_mean(as_vectors("queries", normalize(rows, dim=1) if self.facts.normalize else rows))
        found = self.database.search(self._asked(asked.rows(0, len(asked))), k)
        scale, shift = self.facts.scale, self.facts.mean_bias
        found = [hits if hits and scale * hits[0][1] - shift > least else [] for hits in found]
        ids = list(dict.fromkeys(name for hits in found for name, _ in hits))
        labels: dict[str, str] = {}
        for rows_ in self.database.read(ids):
            labels |= dict(zip(rows_.ids, rows_.labels or [""] * len(rows_.ids), strict=True))
        return [
            [FoundItem(name, labels.get(name, ""), scale * product - shift) for name, product in hits] for hits in found
        ]

    def threshold(self, rate: float) -> float:
        """The score above which a first item is accepted at a rate. Raises InputError if there is none."""
        thresholds = self.thresholds
        require(
            len(thresholds) > 0,
            f"accept: {self.place.address} is not calibrated, or items have come or gone since; give "
            f"vsehub calibrate index={self.place.engine}, its address, queries and truth",
        )
        require(
            rate in thresholds,
            f"accept is {rate!r}; {self.place.address} was calibrated for {', '.join(map(str, thresholds))}. Give one "
            "of these, or calibrate again with false_accept=",
        )
        return thresholds[rate]

    @property
    def thresholds(self) -> dict[float, float]:
        """Rate -> the score above which a first item is accepted; {} unless calibrated with the items that are there.

        A program that adds or removes items without vsehub leaves the version as it is; the number of items tells.
        """
        kept = self.facts.calibration
        if kept is None or (kept["version"], kept["items"]) != (self.facts.version, len(self)):
            return {}
        return {float(rate): float(score) for rate, score in kept["thresholds"].items()}

    def keep_calibration(self, calibration: Calibration, rates: Sequence[float]) -> None:
        """Store the thresholds of a calibration of the items that are there.

        Raises InputError if items have come or gone since this was opened.
        """
        self._require_current()
        self.facts = self.facts.calibrated(stored(calibration, rates), len(self))
        self.database.keep_facts(self.facts.text())

    def new(
        self,
        vectors: VectorSource,
        ids: Sequence[str],
        labels: Sequence[str] | None = None,
        fields: "pa.Table | None" = None,
        kinds: Kinds | None = None,
    ) -> Items:
        """Items (n, D) to `put`, with their biases; labels and fields as those of `Items`.

        kinds: theirs, whose stored means they lose before anything else; None where the collection has none. Raises
        InputError for another dimension, ids that repeat, kinds that do not fit, and a criterion under which a new
        item's bias does not follow from what is kept.
        """
        self.require_fits(vectors, ids, labels)
        vectors, fields = self._of_kinds(vectors, fields, kinds)
        return Items(vectors, self.bias(vectors), ids, labels, fields)

    def _of_kinds(
        self, vectors: VectorSource, fields: "pa.Table | None", kinds: Kinds | None
    ) -> tuple[VectorSource, "pa.Table | None"]:
        """New items without the means of their kinds, and their columns with the kinds."""
        if self.means is None:
            require(
                kinds is None,
                f"item_kinds: {self.place.address} has no means of kinds; omit item_kinds, or fill it anew with them",
            )
            return vectors, fields
        if kinds is None:
            fail(
                f"{self.place.address} holds each item without the mean of its kind ({', '.join(self.means.names)}); "
                "give the kinds of new items: item_kinds"
            )
        return self.means.items(vectors, kinds), with_kinds(fields, kinds.entries)

    def require_fits(self, vectors: VectorSource, ids: Sequence[str], labels: Sequence[str] | None) -> None:
        """Raise InputError for vectors of another dimension, and unless there is an id and a label for each."""
        require(
            vectors.shape[1] == self.facts.dim,
            f"items has {vectors.shape[1]} dimensions; expected {self.facts.dim}, as {self.place.address}",
        )
        for name, texts in (("item_ids", ids), ("item_labels", labels)):
            require(
                texts is None or len(texts) == len(vectors),
                f"{name} has {len(texts or ())} entries for {len(vectors)} items; expected one for each",
            )

    def put(self, items: Items) -> int:
        """Add items; returns how many replaced one of the same id, whose label and columns stay unless given."""
        earlier = self._held(items.ids)
        masses = self._masses([(items.vectors, items.bias, 1.0), *self._leaving(earlier)])
        self._change(masses is not None)
        last, _ = last_components(items.bias, self.facts.scale, self.facts.mean_bias)
        put_in(self.database, items, last, update=True)
        self.database.finish(self.facts.approximate)
        self._keep(masses)
        return len(earlier.ids)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many of the ids were known."""
        earlier = self._held(ids)
        masses = self._masses(self._leaving(earlier))
        self._change(masses is not None)
        self.database.remove(ids)
        self._keep(masses)
        return len(earlier.ids)

    def bias(self, vectors: VectorSource) -> Tensor:
        """The bias (n,) of new items (n, D)."""
        if not self.criterion.needs_reference:
            return torch.zeros(len(vectors))
        require(
            self.facts.reference_rows > 0,
            f"{self.place.address} is corrected by {self.facts.criterion} with items as a reference too, so that the "
            "bias of a new item depends on the others and none can be added alone. Fill it anew with all items and "
            "overwrite=true, or choose csls, is, nnn, dn or sinkhorn",
        )
        return self.kept.bias(self.criterion, vectors, self.facts.items)

    def drift(self, seed: int = 0) -> Drift | None:
        """The effect of added and removed items on the ranking; None for criteria without any.

        Some reference queries are searched, and the biases of their items are computed again after half a round of
        Sinkhorn. This is an estimate: a newly filled collection has ten rounds.
        """
        balance = self._balance
        if balance is None:
            return None
        (criterion, potentials, masses), kept = balance, self.kept
        asked, _ = sampled(as_vectors("reference", kept.reference), ASKED, seed)
        hits = self.database.search(self._asked(asked), min(DEEP, len(self)))
        held = self._held(sorted({one for row in hits for one, _ in row}))
        place = {one: row for row, one in enumerate(held.ids)}
        change = torch.zeros(len(held.ids))
        items, stale = as_vectors("items", held.vectors[:, : self.facts.dim]), potentials - masses.log()
        first = 0
        for scores in score_columns(as_vectors("reference", kept.reference), items)():
            found = criterion.next_bias(scores, stale) - criterion.next_bias(scores, potentials)
            change[first : first + len(found)] = found.cpu()
            first += len(found)
        changed = 0
        for row in hits:
            products = torch.tensor([product for one, product in row if one in place])
            moved = change[[place[one] for one, _ in row if one in place]]
            changed += bool(len(products)) and int((self.facts.scale * products - moved).argmax()) != 0
        return Drift(len(hits), changed / len(hits))

    def items(self) -> tuple[Tensor, Tensor, list[str], list[str]]:
        """All items without their bias (M, D), the bias b (M,), their ids and labels; in memory."""
        held = _joined(self.database.read(), self.facts.stored_dim)
        require(len(held.ids) > 0, f"index_uri: {self.place.address} holds no items")
        vectors = torch.from_numpy(held.vectors[:, : self.facts.dim].copy())
        return vectors, self._bias_of(held), list(held.ids), list(held.labels or ())

    def _bias_of(self, rows: ItemRows) -> Tensor:
        """The bias (n,) that stored vectors hold."""
        return self.facts.mean_bias - self.facts.scale * torch.from_numpy(rows.vectors[:, self.facts.dim].copy())

    @property
    def _balance(self) -> tuple[Sinkhorn, Tensor, Tensor] | None:
        """The criterion, potentials and masses (R,); None if items do not depend on each other."""
        if not self.coupled or not isinstance(self.criterion, Sinkhorn) or self.kept.balance is None:
            return None
        if self.facts.behind:
            self._catch_up(self.criterion)
        return self.criterion, self.kept.balance.potentials, self.kept.balance.masses

    def _catch_up(self, criterion: Sinkhorn) -> None:
        """Compute the masses from all items, after a command was stopped between changing items and masses."""
        assert self.kept.balance is not None
        log.warning("an earlier command was stopped; the masses of all items are computed again")
        masses = torch.zeros_like(self.kept.balance.masses)
        for rows in self.database.read():
            for vectors, bias, _ in self._leaving(rows):
                masses = self._with(criterion, masses, vectors, bias, 1.0)
        self._keep(masses.clamp(min=_LEAST))

    def _held(self, ids: Sequence[str]) -> ItemRows:
        return _joined(self.database.read(ids), self.facts.stored_dim)

    def _leaving(self, rows: ItemRows) -> list[tuple[VectorSource, Tensor, float]]:
        """Items that were there, with the bias that their last component holds, for `_masses`."""
        if not len(rows.ids):
            return []
        return [(as_vectors("items", rows.vectors[:, : self.facts.dim]), self._bias_of(rows), -1.0)]

    def _masses(self, changes: Sequence[tuple[VectorSource, Tensor, float]]) -> Tensor | None:
        """The masses with those of items (n, D) and their bias (n,) added, or taken away where the factor is -1.

        None if they stay as they are.
        """
        balance = self._balance
        if balance is None or not changes:
            return None
        criterion, _, masses = balance
        for vectors, bias, factor in changes:
            masses = self._with(criterion, masses, vectors, bias, factor)
        return masses.clamp(min=_LEAST)

    def _with(self, criterion: Sinkhorn, masses: Tensor, vectors: VectorSource, bias: Tensor, factor: float) -> Tensor:
        """Masses (R,) with those of items (n, D) and their bias (n,) added, `factor` times."""
        assert self.kept.balance is not None
        first = 0
        for scores in score_columns(as_vectors("reference", self.kept.reference), vectors)():
            own = bias[first : first + scores.shape[1]]
            masses = masses + factor * criterion.masses(scores, self.kept.balance.potentials, own)
            first += scores.shape[1]
        return masses

    def _change(self, behind: bool) -> None:
        """Mark the items as changed since the collection was filled, and its calibration as void.

        behind: also mark the stored masses as out of date, until `_keep`.
        """
        if self.facts.calibration is not None:
            log.warning("the calibration of %s is void; calibrate it again", self.place.address)
        version = self.facts.version + 1
        self.facts = replace(self.facts, digest="", behind=behind, version=version, calibration=None)
        self.database.keep_facts(self.facts.text())

    def _require_current(self) -> None:
        """Raise InputError if another command has changed the collection since it was opened."""
        require(
            self.database.facts() == self.facts.text(),
            f"{self.place.address} has been changed meanwhile; give the command again",
        )

    def _keep(self, masses: Tensor | None) -> None:
        if masses is None or self.kept.balance is None:
            return
        self.kept = replace(self.kept, balance=replace(self.kept.balance, masses=masses))
        keep_masses(self.database, self.place, self.facts, masses)
        self.facts = replace(self.facts, behind=False)
        self.database.keep_facts(self.facts.text())


def _joined(parts: Iterator[ItemRows], columns: int) -> ItemRows:
    """Several batches as one."""
    read = [rows for rows in parts if len(rows.ids)]
    vectors = np.concatenate([rows.vectors for rows in read]) if read else np.zeros((0, columns), np.float32)
    labels = [label for rows in read for label in rows.labels or ()]
    return ItemRows([one for rows in read for one in rows.ids], vectors, labels)


@contextmanager
def opened(place: Place) -> Iterator[Living]:
    """The collection within the block. Raises InputError if it is absent, unfinished or not vsehub's."""
    require(place.exists, f"index_uri: {place.uri} does not exist; fill it with rerank index={place.engine}")
    database = place.opened()
    try:
        with place.asking():
            there = database.shape() is not None
            facts = Facts.read(database.facts(), place.address) if there else None
            begun = there or database.building(first=False).shape() is not None
            require(begun, f"index_uri: there is no collection {place.address}; fill it with rerank")
            if facts is None or not facts.complete:
                fail(f"index_uri: {place.address} is unfinished; give the rerank command that began it again")
            require_shape(database, place, facts)
            yield Living(database, place, facts)
    finally:
        database.close()
