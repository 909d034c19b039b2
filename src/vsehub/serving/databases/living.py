"""Items that come and go: a new item's bias from the reference that is kept beside its collection."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import fail, require
from vsehub.criteria.base import Correction, ItemBias, fit_all
from vsehub.neighbors.vectors import VectorSource, as_vectors, sampled
from vsehub.serving.databases.base import Database, asking
from vsehub.serving.databases.collection import Items, put_in, require_shape
from vsehub.serving.databases.engines import REFERENCE, Place
from vsehub.serving.databases.facts import Facts
from vsehub.serving.estimator import named_criterion, plain_settings

KEPT = 20_000  # reference queries that are kept; more are sampled
CALIBRATED = 1000  # items by which the bias from a sample is compared with that from all


def from_reference(criterion: Correction) -> bool:
    """Whether an item's bias depends on the item and the reference queries alone."""
    return criterion.needs_reference and criterion.columnwise and not criterion.takes_reference_items


def to_keep(
    criterion: Correction, items: VectorSource, bias: Tensor, reference: VectorSource, seed: int = 0
) -> tuple[Tensor | None, float]:
    """The reference queries (R, D) to keep beside items (M, D), None for none, and the shift of biases from them.

    bias: (M,), from the whole reference. Sums over fewer queries are smaller and nearest ones farther away: the shift
    is the mean difference, over some of the items.
    """
    if not from_reference(criterion):
        return None, 0.0
    rows, _ = sampled(reference, KEPT, seed)
    if len(rows) == len(reference):
        return rows, 0.0
    some, positions = sampled(items, CALIBRATED, seed)
    (found,) = fit_all([criterion], as_vectors("items", some), as_vectors("reference", rows))[0]
    return rows, float((bias.cpu()[positions] - found.cpu()).mean())


@dataclass(frozen=True)
class Living:
    """A finished collection of vsehub, open to be changed and read."""

    database: Database
    place: Place
    facts: Facts

    def __len__(self) -> int:
        return self.database.count()

    def new(self, vectors: VectorSource, ids: Sequence[str], labels: Sequence[str] | None = None) -> Items:
        """Items (n, D) to `put`, with their biases.

        Raises InputError for another dimension, ids that repeat, and a criterion under which a new item's bias does not
        follow from the reference.
        """
        require(
            vectors.shape[1] == self.facts.dim,
            f"items has {vectors.shape[1]} dimensions; expected {self.facts.dim}, as {self.place.address}",
        )
        for name, texts in (("item_ids", ids), ("item_labels", labels)):
            require(
                texts is None or len(texts) == len(vectors),
                f"{name} has {len(texts or ())} entries for {len(vectors)} items; expected one for each",
            )
        return Items(vectors, self.bias(vectors), ids, labels)

    def put(self, items: Items) -> int:
        """Add items; returns how many of them replace one of the same id."""
        replaced = sum(len(rows.ids) for rows in self.database.read(items.ids))
        last = ((self.facts.mean_bias - items.bias.double()) / self.facts.scale).float()
        put_in(self.database, items, last)
        self.database.finish(self.facts.approximate)
        return replaced

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many of the ids were there."""
        held = sum(len(rows.ids) for rows in self.database.read(ids))
        self.database.remove(ids)
        return held

    def bias(self, vectors: VectorSource) -> Tensor:
        """The bias (n,) of new items (n, D)."""
        facts = self.facts
        criterion = named_criterion(facts.criterion, plain_settings(facts.parameters))
        if not isinstance(criterion, ItemBias) or criterion.scale != facts.scale:
            fail(
                f"index_uri: the facts of {self.place.address} contradict each other; fill it again with overwrite=true"
            )
        if not criterion.needs_reference:
            return torch.zeros(len(vectors))
        require(
            from_reference(criterion),
            f"{self.place.address} is corrected by {facts.criterion}, under which an item's bias depends on the "
            "others, so that none can be added alone. Fill it anew with all items and overwrite=true, or choose csls, "
            "is, nnn or dn",
        )
        (found,) = fit_all([criterion], vectors, as_vectors("reference", self.reference()))[0]
        return found.cpu() + facts.shift

    def reference(self) -> Tensor:
        """The kept reference queries (R, D). Raises InputError if they are not whole."""
        beside = self.database.beside(self.place.name + REFERENCE)
        shape = beside.shape()
        parts = [] if shape is None else [rows.vectors for rows in beside.read()]
        held = sum(len(part) for part in parts)
        dim = self.facts.dim
        whole = 0 < held == self.facts.reference_rows and all(part.shape[1:] == (dim,) for part in parts)
        if not whole or not all(np.isfinite(part).all() for part in parts):
            fail(
                f"index_uri: of the {self.facts.reference_rows} reference queries beside {self.place.address} "
                f"{held} are there; fill it again with overwrite=true"
            )
        return torch.from_numpy(np.concatenate(parts))

    def items(self) -> tuple[Tensor, list[str], list[str]]:
        """All items without their bias (M, D), their ids and labels; in memory."""
        read = list(self.database.read())
        vectors = [rows.vectors[:, : self.facts.dim] for rows in read if len(rows.ids)]
        require(bool(vectors), f"index_uri: {self.place.address} holds no items")
        ids = [one for rows in read for one in rows.ids]
        return torch.from_numpy(np.concatenate(vectors)), ids, [one for rows in read for one in rows.labels]


@contextmanager
def opened(place: Place) -> Iterator[Living]:
    """The collection within the block. Raises InputError if it is absent, unfinished or not vsehub's."""
    require(place.exists, f"index_uri: {place.uri} does not exist; fill it with rerank index={place.engine}")
    database = place.opened()
    try:
        with asking(place.address):
            require(
                database.shape() is not None, f"index_uri: there is no collection {place.address}; fill it with rerank"
            )
            facts = Facts.read(database.facts(), place.address)
            require(
                facts.complete,
                f"index_uri: {place.address} is unfinished; give the rerank command that began it again",
            )
            require_shape(database, place, facts)
            yield Living(database, place, facts)
    finally:
        database.close()
