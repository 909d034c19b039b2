"""A corrected ranking in a vector database: filling a collection, searching it, and changing its items.

A collection holds the vectors of items with their bias as one more dimension (`serving.index`). Its metadata is
written twice: as it is created, incomplete, and after all items are stored. Reference queries, from which new items get
their bias, are in a collection beside it, NAME_ref.
"""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from vsehub.checks import InputError, fail, require
from vsehub.criteria.base import ItemBias, fit_all
from vsehub.data.truth import distinct_ids
from vsehub.io.progress import bar
from vsehub.io.records import require_version
from vsehub.neighbors.vectors import VectorSource, as_vectors, given_back, sampled
from vsehub.serving.databases.base import Database, Hits
from vsehub.serving.databases.engines import Place, note_code
from vsehub.serving.estimator import named_criterion
from vsehub.serving.index import folded, formula, last_components, scored, unit_rows

SCHEMA = 9
REFERENCE_ROWS = 20_000  # reference queries stored at most; of more a sample
_SHIFT_ITEMS = 1000  # items whose bias from the sample is compared with their own
_BYTES = 1 << 24  # of vectors stored at a time
_QUERIES = 1000  # searched at a time
_EXAMPLES = {"string": "a", "bool": True}  # values of a column in the filter of a note; of numbers `_EXAMPLE`
_EXAMPLE = 9


@dataclass(frozen=True)
class Metadata:
    """The metadata of a collection.

    criterion, parameters: the name of a criterion's yaml file, and its settings. reference: where its reference queries
    came from, in words. reference_rows: the number of reference queries stored beside the collection, from which new
    items get their bias; 0 for none. shift: the correction of that bias if these queries are a sample. scale (a) and
    mean_bias (the mean of b): a corrected score is a times the inner product, minus the mean. dim: D; stored vectors
    have one dimension more. approximate: whether the engine searches an approximate index. normalize: whether vectors
    were divided by their norms. columns: the items' further columns and Arrow's names of their types. complete: whether
    all items are stored. version: how often vsehub has added or removed items since then. thresholds: those of
    `vsehub calibrate` by their rates, as texts; {} if not calibrated.
    """

    criterion: str
    parameters: dict[str, Any]
    reference: str
    reference_rows: int
    shift: float
    scale: float
    mean_bias: float
    dim: int
    approximate: bool
    normalize: bool | None
    columns: dict[str, str]
    complete: bool = False
    version: int = 0
    thresholds: dict[str, float] = field(default_factory=dict)

    def text(self) -> str:
        """JSON, to be stored."""
        return json.dumps({"schema": SCHEMA, **asdict(self)})

    @classmethod
    def read(cls, text: str, address: str) -> Self:
        """The metadata of a text. Raises InputError, with the collection's address, if vsehub did not write it."""
        values = read_object(text, address)
        hint = "Or fill it again with overwrite=true"
        require_version(f"uri: {address}", values.pop("schema"), SCHEMA, hint)
        try:
            return cls(**values)
        except TypeError as error:
            raise InputError(f"uri: the metadata of {address} is damaged: {error}. {hint}") from error


def read_object(text: str, address: str) -> dict[str, Any]:
    """The object in a stored text. Raises InputError if the collection is not vsehub's, or kept beside another."""
    values = _parsed(text)
    require(
        "schema" in values,
        f"uri: {address} was not made by vsehub: it has no metadata on its correction. Give another collection",
    )
    name = str(values.get("beside"))[:50]
    require("beside" not in values, f"uri: {address} is the reference of the collection {name!r}; give that one")
    return values


def _parsed(text: str) -> dict[str, Any]:
    try:
        return dict(json.loads(text))
    except (TypeError, ValueError, RecursionError):
        return {}


class FoundItem(NamedTuple):
    """An item that a search found. score: under the collection's criterion."""

    id: str
    label: str
    score: float


class Collection:
    """A collection that vsehub filled, open to be searched and changed.

    ids: of all items, needed for `search`, which returns positions in this order.
    """

    def __init__(self, database: Database, place: Place, metadata: Metadata, ids: Sequence[str] = ()):
        self.database, self.place, self.metadata = database, place, metadata
        self._positions = {name: row for row, name in enumerate(ids)}

    def __len__(self) -> int:
        return self.database.count()

    @cached_property
    def criterion(self) -> ItemBias:
        """The criterion that the metadata names. Raises InputError if the metadata contradicts itself."""
        criterion = named_criterion(self.metadata.criterion, self.metadata.parameters)
        if not isinstance(criterion, ItemBias) or criterion.scale != self.metadata.scale:
            fail(f"uri: the metadata of {self.place.address} contradicts itself; fill it anew")
        return criterion

    @cached_property
    def reference(self) -> Tensor:
        """The reference queries (R, D) stored beside the collection. Raises InputError if some are lost."""
        beside, count, dim = _beside(self.database), self.metadata.reference_rows, self.metadata.dim
        ids, _, vectors = ([], [], torch.empty(0, dim)) if beside.metadata() is None else _read(beside, dim)
        rows = {name: row for row, name in enumerate(ids)}
        require(
            len(rows) == count > 0 and rows.keys() == set(map(str, range(len(rows)))),
            f"uri: of the {count} reference queries beside {self.place.address} some are lost or damaged; fill "
            "it anew with overwrite=true",
        )
        return vectors[[rows[str(row)] for row in range(count)]]

    @property
    def effort(self) -> tuple[Any, str, int] | None:
        """See `ServedIndex.effort`."""
        name, most = getattr(self.database, "effort", ("", 0))
        return (self.database, name, most) if self.metadata.approximate and most else None

    @property
    def thresholds(self) -> dict[float, float]:
        """Rate of false accepts -> threshold of the first score; {} unless calibrated, and once items come or go."""
        return {float(rate): score for rate, score in self.metadata.thresholds.items()}

    def find(self, queries: VectorSource, k: int = 10, accept: float | None = None) -> list[list[FoundItem]]:
        """The k best items of each query (Q, D) under the collection's criterion, best first.

        Queries are normalised if the items were. accept: a rate of `vsehub calibrate`; lists whose first item is not
        accepted at it are empty. Raises InputError for another rate.
        """
        thresholds = self.thresholds
        require(
            accept is None or accept in thresholds,
            f"accept is {accept!r}; {self.place.address} is not calibrated for it, only for "
            f"{', '.join(map(str, thresholds)) or 'no rate'}. Give vsehub calibrate before vsehub index; items that "
            "come or go make its thresholds void",
        )
        least = -np.inf if accept is None else thresholds[accept]
        rows = queries.rows(0, len(queries)).float()
        scale, mean = self.metadata.scale, self.metadata.mean_bias
        hits = self._hits(unit(rows, dim=1) if self.metadata.normalize else rows, k)
        lists = [
            [FoundItem(name, label or "", scale * product - mean) for name, label, product in items] for items in hits
        ]
        return [items if items and items[0].score > least else [] for items in lists]

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) as `ServedIndex.search` returns them, of queries as they are ranked."""
        asked = as_vectors("queries", queries, columns=self.metadata.dim)
        products = torch.full((len(asked), k), -torch.inf)
        positions = torch.full((len(asked), k), -1, dtype=torch.int64)
        for row, hits in enumerate(self._hits(asked.rows(0, len(asked)), k, corrected)):
            for rank, (name, _, product) in enumerate(hits):
                products[row, rank], positions[row, rank] = product, self._positions.get(name, -1)
        values = scored(products, positions, self.metadata.scale, self.metadata.mean_bias, corrected)
        return given_back(queries, values, positions)

    def _hits(self, queries: Tensor, k: int, corrected: bool = True) -> list[Hits]:
        vectors = folded(queries, torch.full((len(queries),), float(corrected)))
        parts = range(0, len(vectors), _QUERIES)
        return [hits for start in parts for hits in self.database.search(vectors[start : start + _QUERIES], k)]

    def items(self) -> tuple[Tensor, Tensor, list[str], list[str]]:
        """All items without their bias (M, D), the bias b (M,), their ids and labels; in memory."""
        dim = self.metadata.dim
        ids, labels, stored = _read(self.database, dim + 1)
        return stored[:, :dim].clone(), self.metadata.mean_bias - self.metadata.scale * stored[:, dim], ids, labels

    def prepare(self, vectors: VectorSource, columns: pa.Table) -> tuple[Tensor, pa.Table]:
        """Bias (n,) and columns of new items (n, D) for `add`. columns: from `item_table`.

        Raises InputError for another dimension, for columns of other types than the stored ones, and for a criterion
        under which the bias of an item depends on the other items.
        """
        self._require_independent()
        require(
            vectors.shape[1] == self.metadata.dim,
            f"items has {vectors.shape[1]} dimensions; expected {self.metadata.dim}, as {self.place.address}",
        )
        known = self.metadata.columns
        schema = [(column.name, known.get(column.name, str(column.type))) for column in columns.schema]
        try:
            columns = columns.cast(pa.schema(schema))
        except pa.ArrowException as error:
            raise InputError(f"item_columns: not of the stored types {known}: {error}") from error
        if not self.criterion.needs_reference:
            return torch.zeros(len(vectors)), columns
        return _bias(self.criterion, vectors, self.reference) + self.metadata.shift, columns

    def add(self, vectors: VectorSource, bias: Tensor, columns: pa.Table) -> int:
        """Add what `prepare` returned; returns how many items replaced others of the same id."""
        before = len(self)
        self._change(columns)
        self._store(vectors, bias, columns)
        return before + len(vectors) - len(self)

    def remove(self, ids: Sequence[str]) -> int:
        """Remove items; returns how many of the ids were known. Raises InputError as `prepare` for the criterion."""
        self._require_independent()
        before = len(self)
        self._change()
        for start in range(0, len(ids), _QUERIES):
            self.database.delete(ids[start : start + _QUERIES])
        return before - len(self)

    def complete(self) -> None:
        """Mark the collection as complete, so that other commands open it."""
        self._write(replace(self.metadata, complete=True))

    def _require_independent(self) -> None:
        require(
            self.criterion.independent,
            f"{self.place.address} is corrected by {self.metadata.criterion}, under which the bias of an item depends "
            "on the other items; fill anew with all items and overwrite=true",
        )

    def _change(self, columns: pa.Table | None = None) -> None:
        """Mark the items as changed since the collection was filled, and its calibration as void."""
        known = self.metadata.columns | ({} if columns is None else _types(columns))
        self._write(replace(self.metadata, version=self.metadata.version + 1, thresholds={}, columns=known))

    def _write(self, metadata: Metadata) -> None:
        self._require_current()
        self.database.metadata(metadata.text())
        self.metadata = metadata

    def _require_current(self) -> None:
        """Raise InputError if another command has changed the collection since it was opened."""
        require(
            self.database.metadata() == self.metadata.text(),
            f"{self.place.address} has been changed by another command; give the command again",
        )

    def _store(self, vectors: VectorSource, bias: Tensor, columns: pa.Table) -> None:
        """Store items in blocks and make them searchable."""
        last, _ = last_components(bias, self.metadata.scale, self.metadata.mean_bias)
        block = max(1, _BYTES // (4 * self.metadata.dim + 4))
        with bar("filling the collection", total=len(vectors), unit=" items") as steps:
            for start in range(0, len(vectors), block):
                self._require_current()
                rows = vectors.rows(start, min(start + block, len(vectors)))
                stored = folded(rows, last[start : start + len(rows)])
                self.database.upsert(stored, columns.slice(start, len(rows)))
                steps.update(len(rows))
        self.database.index(self.metadata.approximate)


def item_table(ids: Sequence[str], labels: Sequence[str] | None = None, fields: pa.Table | None = None) -> pa.Table:
    """The columns of items as they are stored. fields: from `columns.read_columns`. InputError for duplicate ids."""
    distinct_ids("item_ids", ids)
    require(labels is None or len(labels) == len(ids), f"item_labels has {len(labels or ())} entries; not {len(ids)}")
    columns = {"id": pa.array(ids, pa.string())}
    if labels is not None:
        columns["label"] = pa.array(labels, pa.string())
    return pa.table(columns | ({} if fields is None else dict(zip(fields.column_names, fields.columns, strict=True))))


@contextmanager
def fill(
    place: Place,
    items: VectorSource,
    bias: Tensor,
    columns: pa.Table,
    reference: VectorSource,
    *,
    criterion: str,
    rule: ItemBias,
    reference_name: str,
    approximate: bool,
    normalize: bool | None,
    thresholds: Mapping[str, float] | None = None,
    seed: int = 0,
    overwrite: bool = False,
) -> Iterator[Collection]:
    """A new collection of items (M, D), which replaces any earlier one; `complete` lets other commands open it.

    bias: b (M,) under `rule`, the criterion of that name. columns: from `item_table`. thresholds: of these items.
    overwrite: whether a finished collection is replaced. Raises InputError for one that must not be replaced.
    """
    queries, shift = _stored_reference(rule, items, bias, reference, seed)
    metadata = Metadata(
        criterion=criterion,
        parameters=rule.parameters(),
        reference=reference_name,
        reference_rows=len(queries),
        shift=shift,
        scale=float(rule.scale),
        mean_bias=last_components(bias, rule.scale)[1],
        dim=items.shape[1],
        approximate=approximate,
        normalize=normalize,
        columns=_types(columns),
        thresholds=dict(thresholds or {}),
    )
    with place.connect() as database:
        _require_free(database, place, overwrite)
        database.create(metadata.dim + 1, metadata.text())
        beside = _beside(database)
        if len(queries) or beside.metadata() is not None:
            beside.create(metadata.dim, json.dumps({"schema": SCHEMA, "beside": place.name}))
        for start in range(0, len(queries), _QUERIES):
            rows = queries[start : start + _QUERIES].float().numpy()
            beside.upsert(rows, item_table([str(row) for row in range(start, start + len(rows))]))
        collection = Collection(database, place, metadata, columns.column("id").to_pylist())
        collection._store(items, bias, columns)
        count = len(collection)
        require(count == len(items), f"uri: {place.address} holds {count} items after filling, not {len(items)}")
        yield collection


@contextmanager
def open_collection(place: Place) -> Iterator[Collection]:
    """The collection within the block. Raises InputError if it is absent, unfinished or not vsehub's."""
    require(place.exists, f"uri: {place.uri} does not exist; fill it with vsehub index engine={place.engine}")
    with place.connect() as database:
        text = database.metadata()
        if text is None:
            fail(f"uri: there is no collection {place.address}; fill it with vsehub index")
        metadata = Metadata.read(text, place.address)
        require(metadata.complete, f"uri: {place.address} is unfinished; fill it again with vsehub index")
        yield Collection(database, place, metadata)


def usage_note(collection: Collection, columns: pa.Table, k: int = 10, queries: str = "queries.npy") -> str:
    """Python that searches a collection with the engine's client: `ids` and `scores` (Q, k) of the vectors in a file.

    columns: of the items; the first further one, or else the id, is the example of a filter.
    """
    place, metadata = collection.place, collection.metadata
    name, kind = next(iter(_types(columns).items()), ("id", "string"))
    imports, search = place.module.note(place.code, place.name, k, (name, _EXAMPLES.get(kind, _EXAMPLE)))
    search = (
        f"{unit_rows(metadata.normalize)}"
        f'last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking\n'
        f"vectors = np.hstack([queries, last])\n"
        f"{search}"
        f"scores = {formula(metadata.scale, metadata.mean_bias)}  # the corrected scores, best first\n"
    )
    return note_code(imports, queries, metadata.dim, search)


def _require_free(database: Database, place: Place, overwrite: bool) -> None:
    """Raise InputError for a collection, or a reference beside it, that must not be replaced."""
    text, beside = database.metadata(), _beside(database)
    stored = {"complete": False} if text is None else read_object(text, place.address)
    require(
        overwrite or stored.get("complete") is False,
        f"uri: {place.address} holds a finished collection. Give another collection or uri, or "
        "overwrite=true to replace it",
    )
    text = beside.metadata()
    require(
        text is None or _parsed(text).get("beside") == place.name,
        f"uri: {beside.name} at {place.uri} is not the reference of {place.name}; give another collection",
    )


def _beside(database: Database) -> Database:
    """The collection of the reference queries of another."""
    beside = copy.copy(database)
    beside.name = f"{database.name}_ref"
    return beside


def _read(database: Database, dimensions: int) -> tuple[list[str], list[str], Tensor]:
    """Ids, labels and vectors of all items."""
    parts = list(database.scan())
    ids = [name for names, _, _ in parts for name in names]
    labels = [label or "" for _, texts, _ in parts for label in texts]
    vectors = [np.array(rows, np.float32) for _, _, rows in parts if len(rows)]
    return ids, labels, torch.from_numpy(np.concatenate([np.empty((0, dimensions), np.float32), *vectors]))


def _stored_reference(
    rule: ItemBias, items: VectorSource, bias: Tensor, reference: VectorSource, seed: int
) -> tuple[Tensor, float]:
    """The reference queries to store (R, D), and what is added to every bias computed from these.

    A sample of queries gives smaller sums and farther nearest queries: the shift is the mean difference over some of
    the items.
    """
    if not rule.needs_reference:
        return torch.empty(0, items.shape[1]), 0.0
    rows = sampled(reference, REFERENCE_ROWS, seed)[0].cpu()
    if len(rows) == len(reference) or not rule.independent:
        return rows, 0.0
    some, positions = sampled(items, _SHIFT_ITEMS, seed)
    again = _bias(rule, as_vectors("items", some), rows)
    return rows, float((bias.cpu()[positions].double() - again.double()).mean())


def _bias(rule: ItemBias, items: VectorSource, reference: Tensor) -> Tensor:
    return fit_all([rule], items, as_vectors("reference", reference))[0][0].cpu()


def _types(columns: pa.Table) -> dict[str, str]:
    """The further columns, and Arrow's names of their types."""
    return {column.name: str(column.type) for column in columns.schema if column.name not in ("id", "label")}
