"""A corrected ranking in a vector database: filling a collection, searching it, and changing its items.

A collection holds the vectors of items with their bias as one more dimension (`serving.index`). Its metadata is written
twice: as it is created, incomplete, and after all items are stored. The reference queries, which give new items their
bias, are in a collection beside it, NAME_ref.

The metadata is a JSON object. criterion, parameters: the name of a criterion's yaml file, and its settings. reference:
where its reference queries came from, in words. reference_rows: the number of reference queries stored beside the
collection; 0 for none. shift: the correction of a new item's bias if these queries are a sample. scale (a) and
mean_bias (the mean of b): a corrected score is a times the inner product, minus the mean. dim: D; stored vectors have
one dimension more. approximate: whether the engine searches an approximate index. normalize: whether vectors were
divided by their norms. complete: whether all items are stored. version: number of changes by `vsehub add`.
"""

import copy
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from vsehub.checks import fail, require
from vsehub.criteria.base import ItemBias, fit_all
from vsehub.criteria.choose import named_criterion
from vsehub.data.truth import require_distinct_ids
from vsehub.io.progress import bar
from vsehub.io.records import require_version
from vsehub.neighbors.vectors import VectorSource, as_vectors, sample_rows, to_type_of
from vsehub.serving.databases.engines import Database, Hits, Location, note_code
from vsehub.serving.index import folded, formula, last_components, normalize_code, scored

SCHEMA = 9
REFERENCE_ROWS = 20_000  # reference queries stored at most; of more a sample
_SHIFT_ITEMS = 1000  # items for which the biases from all reference queries and from the sample are compared
_BYTES = 1 << 24  # of vectors stored at a time
_QUERIES = 1000  # searched at a time


class Collection:
    """A collection that vsehub filled, open to be searched and changed.

    metadata: see the module. ids: ids of all items, needed for `search`, which returns positions in this order.
    """

    def __init__(self, database: Database, location: Location, metadata: dict[str, Any], ids: Sequence[str] = ()):
        self.database, self.location, self.metadata = database, location, metadata
        self._positions = {name: row for row, name in enumerate(ids)}

    def __len__(self) -> int:
        return self.database.count()

    @property
    def reference(self) -> Tensor:
        """The reference queries (R, D) stored beside the collection. Raises InputError if some are lost."""
        ids, vectors = read_items(reference_collection(self.database), self.metadata["dim"])
        require(
            sorted(ids) == sorted(map(str, range(self.metadata["reference_rows"]))),
            f"uri: some reference queries beside {self.location.title} are lost; fill it anew with overwrite=true",
        )
        return vectors[torch.tensor(list(map(int, ids))).argsort()]

    def find(self, queries: VectorSource, k: int = 10) -> list[list[tuple[str, str, float]]]:
        """Id, label and corrected score of the k best items of each query (Q, D), best first.

        Queries are normalised if the items were.
        """
        scale, mean = self.metadata["scale"], self.metadata["mean_bias"]
        rows = queries.rows(0, len(queries)).float()
        hits = self._hits(unit(rows, dim=1) if self.metadata["normalize"] else rows, k)
        return [[(name, label or "", scale * product - mean) for name, label, product in items] for items in hits]

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k), as `ServedIndex.search` returns them."""
        source = as_vectors("queries", queries, columns=self.metadata["dim"])
        products = torch.full((len(source), k), -torch.inf)
        positions = torch.full((len(source), k), -1, dtype=torch.int64)
        for row, hits in enumerate(self._hits(source.rows(0, len(source)), k, corrected)):
            for rank, (name, _, product) in enumerate(hits):
                products[row, rank], positions[row, rank] = product, self._positions.get(name, -1)
        values = scored(products, positions, self.metadata["scale"], self.metadata["mean_bias"], corrected)
        return to_type_of(queries, values, positions)

    def _hits(self, queries: Tensor, k: int, corrected: bool = True) -> list[Hits]:
        vectors = folded(queries, torch.full((len(queries),), float(corrected)))
        return [
            hits
            for start in range(0, len(vectors), _QUERIES)
            for hits in self.database.search(vectors[start : start + _QUERIES], k)
        ]

    def change(
        self,
        removed_ids: Sequence[str] = (),
        vectors: VectorSource | None = None,
        ids: Sequence[str] = (),
        labels: Sequence[str] | None = None,
    ) -> tuple[int, int]:
        """Remove items, then add items (n, D); returns how many were removed, and how many were replaced.

        removed_ids: unknown ids are ignored. ids, labels: those of the added items. Raises InputError, before anything
        is changed, for another dimension, for ids or labels that do not fit, and for a criterion under which the bias
        of an item depends on the other items.
        """
        metadata = self.metadata
        criterion: Any = named_criterion(metadata["criterion"], metadata["parameters"])
        require(
            criterion.items_are_independent,
            f"{self.location.title} is corrected by {metadata['criterion']}, under which the bias of an item depends "
            "on the other items; fill anew with all items and overwrite=true",
        )
        bias = torch.zeros(len(ids))
        if vectors is not None:
            vectors = as_vectors("items", vectors, metadata["dim"])
            require_names(len(vectors), ids, labels)
            if criterion.needs_reference:
                bias = _bias(criterion, vectors, self.reference) + metadata["shift"]
        count_before = len(self)
        self._write(metadata | {"version": metadata["version"] + 1})
        for start in range(0, len(removed_ids), _QUERIES):
            self.database.delete(removed_ids[start : start + _QUERIES])
        count_left = len(self)
        if vectors is not None:
            self._store(vectors, bias, ids, labels)
        # Items with an id that was there already do not raise the count.
        return count_before - count_left, count_left + len(ids) - len(self)

    def _write(self, metadata: dict[str, Any]) -> None:
        self._require_current()
        self.database.store_metadata(json.dumps(metadata))
        self.metadata = metadata

    def _require_current(self) -> None:
        """Raise InputError if another command has changed the collection since it was opened."""
        require(
            self.database.metadata() == json.dumps(self.metadata),
            f"{self.location.title} has been changed by another command; give the command again",
        )

    def _store(self, vectors: VectorSource, bias: Tensor, ids: Sequence[str], labels: Sequence[str] | None) -> None:
        """Store items in blocks and make them searchable."""
        last, _ = last_components(bias, self.metadata["scale"], self.metadata["mean_bias"])
        block = max(1, _BYTES // (4 * self.metadata["dim"] + 4))
        with bar("filling the collection", total=len(vectors), unit=" items") as steps:
            for start in range(0, len(vectors), block):
                self._require_current()
                part = slice(start, min(start + block, len(vectors)))
                stored = folded(vectors.rows(part.start, part.stop), last[part])
                self.database.upsert(ids[part], stored, None if labels is None else labels[part])
                steps.update(len(stored))
        self.database.index(self.metadata["approximate"])


def require_names(rows: int, ids: Sequence[str], labels: Sequence[str] | None) -> None:
    """Raise InputError for ids or labels that are not as many as the items, and for duplicate ids."""
    require_distinct_ids("item_ids", ids)
    require(len(ids) == rows, f"item_ids has {len(ids)} entries; expected one for each of {rows} items")
    require(labels is None or len(labels) == rows, f"item_labels has {len(labels or ())} entries; not {rows}")


class Items(NamedTuple):
    """Items to store. vectors: (M, D). ids, labels: M texts each, labels optional. normalize: see the module."""

    vectors: VectorSource
    ids: Sequence[str]
    labels: Sequence[str] | None = None
    normalize: bool | None = None


class Fitted(NamedTuple):
    """A correction that was fitted for the items.

    name: the name of a criterion's yaml file. criterion: the criterion. bias: b (M,). reference: the reference queries
    (R, D). origin: where they came from, in words.
    """

    name: str
    criterion: ItemBias
    bias: Tensor
    reference: VectorSource
    origin: str


@contextmanager
def fill(
    location: Location, items: Items, fitted: Fitted, approximate: bool = False, overwrite: bool = False, seed: int = 0
) -> Iterator[Collection]:
    """A new collection of items, which replaces any earlier one; complete once the block has ended.

    approximate: whether the engine searches an approximate index. overwrite: whether a finished collection is replaced.
    seed: seed of the sample of a large reference. Raises InputError for a collection that must not be replaced.
    """
    require_names(len(items.vectors), items.ids, items.labels)
    queries, shift = _stored_reference(items.vectors, fitted, seed)
    dim, scale = items.vectors.shape[1], float(fitted.criterion.scale)
    metadata = {
        "schema": SCHEMA,
        "criterion": fitted.name,
        "parameters": fitted.criterion.parameters(),
        "reference": fitted.origin,
        "reference_rows": len(queries),
        "shift": shift,
        "scale": scale,
        "mean_bias": last_components(fitted.bias, scale)[1],
        "dim": dim,
        "approximate": approximate,
        "normalize": items.normalize,
        "complete": False,
        "version": 0,
    }
    with location.connect() as database:
        _require_free(database, location, overwrite)
        database.create(dim + 1, json.dumps(metadata))
        reference = reference_collection(database)
        if len(queries) or reference.metadata() is not None:
            reference.create(dim, json.dumps({"schema": SCHEMA, "beside": location.name}))
        for start in range(0, len(queries), _QUERIES):
            rows = queries[start : start + _QUERIES].float().numpy()
            reference.upsert([str(row) for row in range(start, start + len(rows))], rows)
        collection = Collection(database, location, metadata, items.ids)
        collection._store(items.vectors, fitted.bias, items.ids, items.labels)
        count, wanted = len(collection), len(items.ids)
        require(count == wanted, f"uri: {location.title} holds {count} items after filling, not {wanted}")
        yield collection
        collection._write(metadata | {"complete": True})


@contextmanager
def open_collection(location: Location) -> Iterator[Collection]:
    """The collection within the block. Raises InputError if it is absent, unfinished or not vsehub's."""
    require(
        location.served or Path(location.uri).exists(), f"uri: {location.uri} does not exist; fill it with vsehub index"
    )
    with location.connect() as database:
        text = database.metadata()
        if text is None:
            fail(f"uri: there is no collection {location.title}; fill it with vsehub index")
        metadata = parse_metadata(text, location.title)
        require_version(f"uri: {location.title}", metadata["schema"], SCHEMA, "Or fill it again with overwrite=true")
        require(metadata["complete"], f"uri: {location.title} is unfinished; fill it again with vsehub index")
        yield Collection(database, location, metadata)


def usage_note(collection: Collection, folder: Path, k: int = 10, queries: str = "queries.npy") -> str:
    """Python that searches a collection with the engine's client for vectors in a file: `ids` and `scores` (Q, k).

    folder: the working folder of that Python.
    """
    location, metadata = collection.location, collection.metadata
    imports, search = location.module.note(location.uri_code(folder), location.name, k)
    search = (
        f"{normalize_code(metadata['normalize'])}"
        f'last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking\n'
        f"vectors = np.hstack([queries, last])\n"
        f"{search}"
        f"scores = {formula(metadata['scale'], metadata['mean_bias'])}  # best first; without terms of the query\n"
    )
    return note_code(imports, queries, metadata["dim"], search)


def parse_metadata(text: str, title: str, key: str = "criterion") -> dict[str, Any]:
    """The JSON object in a stored text. Raises InputError without `key`: vsehub did not make the collection."""
    try:
        metadata = dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        metadata = {}
    require(
        key in metadata,
        f"uri: {title} was not made by vsehub, or is the reference of another collection; give another",
    )
    return metadata


def _require_free(database: Database, location: Location, overwrite: bool) -> None:
    """Raise InputError for a collection, or a reference beside it, that must not be replaced."""
    text, of_reference = database.metadata(), reference_collection(database).metadata()
    require(
        text is None or parse_metadata(text, location.title).get("complete") is False or overwrite,
        f"uri: {location.title} holds a finished collection; give another, or overwrite=true to replace it",
    )
    if of_reference is not None:
        parse_metadata(of_reference, f"{location.name}_ref at {location.uri}", "beside")


def reference_collection(database: Database) -> Database:
    """The collection beside `database` that holds its reference queries."""
    reference = copy.copy(database)
    reference.name = f"{database.name}_ref"
    return reference


def read_items(database: Database, dimensions: int) -> tuple[list[str], Tensor]:
    """Ids and stored vectors of all items."""
    parts = list(database.scan())
    ids = [name for names, _ in parts for name in names]
    vectors = [np.array(rows, np.float32) for _, rows in parts if len(rows)]
    return ids, torch.from_numpy(np.concatenate([np.empty((0, dimensions), np.float32), *vectors]))


def _stored_reference(items: VectorSource, fitted: Fitted, seed: int) -> tuple[Tensor, float]:
    """The reference queries to store (R, D), and what is added to every bias computed from these.

    A sample of queries gives smaller sums and farther nearest queries: the shift is the mean difference over some of
    the items.
    """
    if not fitted.criterion.needs_reference:
        return torch.empty(0, items.shape[1]), 0.0
    rows = sample_rows(fitted.reference, REFERENCE_ROWS, seed)[0].cpu()
    if len(rows) == len(fitted.reference) or not fitted.criterion.items_are_independent:
        return rows, 0.0
    chosen, positions = sample_rows(items, _SHIFT_ITEMS, seed)
    sample_bias = _bias(fitted.criterion, as_vectors("items", chosen), rows)
    return rows, float((fitted.bias.cpu()[positions].double() - sample_bias.double()).mean())


def _bias(criterion: ItemBias, items: VectorSource, reference: Tensor) -> Tensor:
    return fit_all([criterion], items, as_vectors("reference", reference))[0][0].cpu()
