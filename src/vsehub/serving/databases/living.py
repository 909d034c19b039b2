"""A finished collection, open to be searched, and changed by items that come or go."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from vsehub.checks import fail, require
from vsehub.criteria.base import ItemBias
from vsehub.neighbors.vectors import VectorSource
from vsehub.serving.calibration import Calibration, stored
from vsehub.serving.corrected import last_components
from vsehub.serving.databases.base import Database
from vsehub.serving.databases.collection import Items, put_in, require_shape, with_last
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.facts import Facts
from vsehub.serving.databases.kept import Kept, read_kept
from vsehub.serving.estimator import named_criterion, plain_settings

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


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
        return read_kept(self.database, self.place, self.facts)

    def search(self, queries: VectorSource, k: int = 10, accept: float | None = None) -> list[list[FoundItem]]:
        """The k best items of each query (Q, D) under the collection's criterion, best first.

        Queries are normalised if the items were. accept: a rate of `vsehub calibrate`; lists whose first item is not
        accepted at it are empty. Raises InputError as `threshold`.
        """
        least = -np.inf if accept is None else self.threshold(accept)
        rows = queries.rows(0, len(queries)).float()
        rows = normalize(rows, dim=1) if self.facts.normalize else rows
        found = self.database.search(with_last(rows, torch.ones(len(rows))), k)
        require(
            all(isinstance(one, str) and product is not None for hits in found for one, product in hits),
            f"index_uri: {self.place.address} holds items without a vector, or whose id is no text",
        )
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
    ) -> Items:
        """Items (n, D) to `put`, with their biases; labels and fields as those of `Items`.

        Raises InputError for another dimension, ids that repeat, and a criterion under which a new item's bias does
        not follow from what is kept.
        """
        self.require_fits(vectors, ids, labels)
        return Items(vectors, self.bias(vectors), ids, labels, fields)

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
        self._change()
        last, _ = last_components(items.bias, self.facts.scale, self.facts.mean_bias)
        put_in(self.database, items, last, update=True)
        self.database.finish(self.facts.approximate)
        return earlier

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many of the ids were known. Raises InputError as `bias`."""
        self._require_independent()
        earlier = self._held(ids)
        self._change()
        self.database.remove(ids)
        return earlier

    def bias(self, vectors: VectorSource) -> Tensor:
        """The bias (n,) of new items (n, D). Raises InputError if it depends on the other items."""
        self._require_independent()
        if not self.criterion.needs_reference:
            return torch.zeros(len(vectors))
        return self.kept.bias(self.criterion, vectors)

    def _require_independent(self) -> None:
        """Raise InputError for a criterion under which the bias of an item depends on the other items."""
        require(
            self.criterion.independent,
            f"{self.place.address} is corrected by {self.facts.criterion}, under which the bias of an item depends on "
            "the other items; fill it anew with all items and overwrite=true",
        )

    def items(self) -> tuple[Tensor, Tensor, list[str], list[str]]:
        """All items without their bias (M, D), the bias b (M,), their ids and labels; in memory."""
        read = [rows for rows in self.database.read() if len(rows.ids)]
        require(len(read) > 0, f"index_uri: {self.place.address} holds no items")
        stored = torch.from_numpy(np.concatenate([rows.vectors for rows in read]))
        bias = self.facts.mean_bias - self.facts.scale * stored[:, self.facts.dim]
        ids = [one for rows in read for one in rows.ids]
        labels = [label for rows in read for label in rows.labels or ()]
        return stored[:, : self.facts.dim].clone(), bias, ids, labels

    def _held(self, ids: Sequence[str]) -> int:
        """How many of these ids are there."""
        return sum(len(rows.ids) for rows in self.database.read(ids))

    def _change(self) -> None:
        """Mark the items as changed since the collection was filled, and its calibration as void."""
        if self.facts.calibration is not None:
            log.warning("the calibration of %s is void; calibrate it again", self.place.address)
        self.facts = replace(self.facts, digest="", version=self.facts.version + 1, calibration=None)
        self.database.keep_facts(self.facts.text())

    def _require_current(self) -> None:
        """Raise InputError if another command has changed the collection since it was opened."""
        require(
            self.database.facts() == self.facts.text(),
            f"{self.place.address} has been changed meanwhile; give the command again",
        )


@contextmanager
def opened(place: Place) -> Iterator[Living]:
    """The collection within the block. Raises InputError if it is absent, unfinished or not vsehub's."""
    require(place.exists, f"index_uri: {place.uri} does not exist; fill it with rerank index={place.engine}")
    database = place.opened()
    try:
        with place.asking():
            there = database.shape() is not None
            require(there, f"index_uri: there is no collection {place.address}; fill it with rerank")
            facts = Facts.read(database.facts(), place.address)
            require(
                facts.complete, f"index_uri: {place.address} is unfinished; give the rerank command that began it again"
            )
            require_shape(database, place, facts)
            yield Living(database, place, facts)
    finally:
        database.close()
