"""A corrected ranking in a vector database: filling a collection, finishing an unfinished one, searching it."""

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NoReturn, Self

import numpy as np
import torch
from torch import Tensor

from vsehub.checks import InputError, fail, require
from vsehub.data.truth import distinct_ids
from vsehub.io.progress import bar
from vsehub.neighbors.vectors import VectorSource, as_vectors, given_back
from vsehub.serving.corrected import (
    folded,
    formula,
    last_components,
    scored,
    unit_rows,
)
from vsehub.serving.databases.base import Database, FilterExample, ItemRows
from vsehub.serving.databases.engines import Place
from vsehub.serving.databases.facts import Facts, is_beside, require_of_vsehub
from vsehub.serving.databases.kept import Kept, forget, keep

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

BLOCK = 10_000  # items stored at a time
_LONGEST = 10_000  # bytes of an id or a label in UTF-8


@dataclass(frozen=True)
class Items:
    """Items for a collection: vectors (M, D), their biases b (M,) and ids.

    labels: M texts, or None. fields: M rows of further columns (`columns.read_columns`), or None. fingerprint: of the
    vectors' file. Raises InputError for ids that repeat and for texts that are too long.
    """

    vectors: VectorSource
    bias: Tensor
    ids: Sequence[str]
    labels: Sequence[str] | None = None
    fields: "pa.Table | None" = None
    fingerprint: str = ""

    def __post_init__(self) -> None:
        distinct_ids("item_ids", self.ids)
        for name, texts in (("id", self.ids), ("label", self.labels or ())):
            long = next((row for row, one in enumerate(texts) if len(one.encode()) > _LONGEST or "\0" in one), None)
            require(
                long is None,
                f"the {name} of item {long}, counted from 0, has more than {_LONGEST:,} bytes or a zero byte, which "
                "not every database takes; shorten it",
            )

    def digest(self) -> str:
        """A hash of ids, labels, further columns, and biases."""
        found = hashlib.sha256(self.bias.detach().cpu().double().numpy().tobytes())
        for texts in (self.ids, self.labels or ()):
            for one in texts:
                found.update(one.encode() + b"\0")
            found.update(b"\1")
        for name in [] if self.fields is None else self.fields.column_names:
            found.update(repr((name, self.fields.column(name).to_pylist())).encode())  # type: ignore[union-attr]
        return found.hexdigest()[:32]


class Collection:
    """A collection that vsehub filled, open for search. ids: of all items; `search` returns positions in this order."""

    def __init__(self, database: Database, place: Place, facts: Facts, ids: Sequence[str]):
        self.database, self.place, self.facts = database, place, facts
        self._rows = {one: row for row, one in enumerate(ids)}

    def __len__(self) -> int:
        with self.place.asking():
            return self.database.count()

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) as `ServedIndex.search` gives them."""
        asked = as_vectors("queries", queries, columns=self.facts.dim)
        vectors = with_last(asked.rows(0, len(asked)), torch.full((len(asked),), float(corrected)))
        with self.place.asking():
            found = self.database.search(vectors, k)
        products = torch.full((len(asked), k), -torch.inf)
        positions = torch.full((len(asked), k), -1, dtype=torch.int64)
        for row, hits in enumerate(found):
            for rank, (one, product) in enumerate(hits[:k]):
                if one in self._rows:
                    products[row, rank], positions[row, rank] = product, self._rows[one]
        values = scored(products, positions, self.facts.scale, self.facts.mean_bias, corrected)
        return given_back(queries, values, positions)

    def complete(self) -> None:
        """Mark the collection as complete, so that other commands open it."""
        self.facts = replace(self.facts, complete=True)
        with self.place.asking():
            self.database.keep_facts(self.facts.text())

    def size(self) -> int | None:
        """Bytes on disk; None where the engine does not say."""
        with self.place.asking():
            return self.database.size()

    def close(self) -> None:
        """End the connection."""
        self.database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def facts_of(
    items: Items,
    scale: float,
    *,
    criterion: str,
    parameters: Mapping[str, Any],
    reference: str,
    kept: Kept | None = None,
    approximate: bool,
    normalize: bool | None,
    calibration: dict[str, Any] | None = None,
) -> Facts:
    """The facts of a collection for these items, ranked by a·s - b(item); see `Facts` and `Kept`."""
    found = Facts(
        criterion=criterion,
        parameters=json.loads(json.dumps(dict(parameters))),  # the same values as after reading
        reference=reference,
        reference_rows=0 if kept is None else len(kept.reference),
        shift=0.0 if kept is None else kept.shift,
        scale=float(scale),
        mean_bias=last_components(items.bias, scale)[1],
        dim=items.vectors.shape[1],
        items=len(items.vectors),
        approximate=approximate,
        normalize=normalize,
        fingerprint=items.fingerprint,
        digest=items.digest(),
        complete=False,
    )
    return found if calibration is None else found.calibrated(calibration, found.items)


def require_free(place: Place, overwrite: bool, begun: bool = False) -> None:
    """Raise InputError if the engine does not answer, or has a collection that must not be replaced.

    begun: whether an earlier run of this command was stopped. That run may have finished the collection; `fill` finds
    out whether a finished collection is its own. A collection that vsehub did not make is never replaced.
    """
    if not place.exists:
        return
    with _connected(place) as database:
        found = _facts_of(database, place, readable=not overwrite)
        if found is not None and found.complete and not overwrite and not begun:
            _refuse_finished(place)


@contextmanager
def _connected(place: Place) -> Iterator[Database]:
    """The collection of a place, which need not exist. Errors are turned into one line."""
    database = place.opened()
    try:
        with place.asking():
            yield database
    finally:
        database.close()


def _facts_of(database: Database, place: Place, readable: bool) -> Facts | None:
    """The facts of an existing collection; None if there is none.

    readable: False if the collection is to be replaced: damaged facts, or facts of another version, are then None.
    Raises InputError if the collection is not one that vsehub filled.
    """
    if database.shape() is None:
        return None
    text = database.facts()
    require_of_vsehub(text, place.address)
    try:
        return Facts.read(text, place.address)
    except InputError:
        if readable or is_beside(text):
            raise
        return None


def _refuse_finished(place: Place) -> NoReturn:
    fail(
        f"index_uri: {place.address} holds a finished collection already. Give another index_name or index_uri, or "
        "overwrite=true to replace it"
    )


def fill(
    place: Place,
    facts: Facts,
    items: Items,
    kept: Kept | None = None,
    overwrite: bool = False,
) -> Collection:
    """A collection with these items, in the place of any earlier one; `complete` says that it can be opened.

    facts: from `facts_of`. kept: stored beside the collection, with as many reference queries as the facts say. A
    finished collection of the same facts is returned unchanged: its command may have been stopped before writing its
    own result. overwrite: replace any other collection of vsehub's, which is removed first. Raises InputError for a
    collection that must not be replaced, and if the engine refuses; the same command, run again, continues.
    """
    database = place.opened()
    try:
        with place.asking():
            found = _facts_of(database, place, readable=not overwrite)
            own = found is not None and found.is_of_the_command_of(facts)
            if found is not None and found.complete:
                if own:
                    return Collection(database, place, found, items.ids)
                if not overwrite:
                    _refuse_finished(place)
            start = _begun(database, place, facts, own, overwrite)
            keep(database, place, facts, kept)
            log.info("filling %s from item %d of %d", place.address, start, facts.items)
            put_in(database, items, last_components(items.bias, facts.scale, facts.mean_bias)[0], start)
            database.finish(facts.approximate)
            held = database.count()
            require(
                held == facts.items,
                f"index_uri: {place.address} holds {held} items after filling, not {facts.items}: does another program "
                "write to it? Give the command again, or overwrite=true",
            )
    except BaseException:
        database.close()
        raise
    return Collection(database, place, facts, items.ids)


def _begun(database: Database, place: Place, facts: Facts, own: bool, overwrite: bool) -> int:
    """The first row that is still missing in a collection, which is created if necessary. own: it has these facts."""
    if own:
        require_shape(database, place, facts)
        # Blocks were stored in order: all but the last one begun are whole.
        return max(0, (min(database.count(), facts.items) - 1) // BLOCK * BLOCK)
    there = database.shape() is not None
    require(
        overwrite or not there,
        f"index_uri: {place.address} holds the unfinished collection of another command. Give that command again, "
        "another index_name or index_uri, or overwrite=true to replace it",
    )
    forget(database, place)
    if there:
        database.drop()
    database.create(facts.stored_dim, facts.text())
    return 0


def require_shape(database: Database, place: Place, facts: Facts) -> None:
    """Raise InputError unless a collection has the dimension and the metric of its facts."""
    shape = database.shape()
    if shape is None:
        fail(f"index_uri: there is no collection {place.address}; fill it with rerank")
    require(
        shape.inner_product,
        f"index_uri: {place.address} is not searched by inner product, which the correction needs; fill it again",
    )
    require(
        shape.dimensions == facts.stored_dim,
        f"index_uri: {place.address} holds vectors of {shape.dimensions} dimensions; expected {facts.stored_dim}: "
        "those of the items, and one for the bias",
    )


def put_in(database: Database, items: Items, last: Tensor, start: int = 0, update: bool = False) -> None:
    """Put items from row `start` on into a collection, with their last components (M,), block by block.

    update: keep the labels and columns of earlier items of the same ids where none are given.
    """
    vectors = items.vectors
    with bar("filling the collection", total=len(vectors), initial=start, unit=" items") as steps:
        for first in range(start, len(vectors), BLOCK):
            rows = vectors.rows(first, min(first + BLOCK, len(vectors)))
            stop = first + len(rows)
            texts = None if items.labels is None else items.labels[first:stop]
            fields = None if items.fields is None else items.fields.slice(first, len(rows))
            block = ItemRows(items.ids[first:stop], with_last(rows, last[first:stop]), texts, fields)
            (database.update if update else database.put)(block)
            steps.update(len(rows))


def with_last(vectors: Tensor, last: Tensor) -> np.ndarray:
    """Vectors (b, D) with their last component (b,) appended."""
    dim = vectors.shape[1]
    return folded(vectors, last, dim, dim + 1).numpy()


def usage_note(
    collection: Collection,
    uri: str,
    k: int = 10,
    fields: "pa.Table | None" = None,
) -> str:
    """Python that searches the collection at `uri` with the engine's client: `ids` and `scores` (Q, k).

    fields: the items' further columns, one of which a filter may name.
    """
    facts = collection.facts
    k = min(k, facts.items)
    imports, search = collection.place.note(uri, k, FilterExample.of(fields))
    return (
        f"{imports}\n"
        f'queries = np.load("queries.npy").astype("float32")  # (Q, {facts.dim})\n'
        f"{unit_rows(facts.normalize)}"
        f'last = np.ones((len(queries), 1), "float32")  # zeros instead of ones: the plain ranking\n'
        "vectors = np.hstack([queries, last])\n"
        f"{search}"
        f"scores = {formula(facts.scale, facts.mean_bias)}  # the corrected scores, best first\n"
    )
