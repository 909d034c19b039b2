"""The interface of an engine: one collection of vectors with ids, labels and columns, searched by inner product.

An engine is a module of this package, named in `engines.ENGINES`, with these functions:

connect(uri, name): a context in which a `Database` is open.
read_biases(database, ids, field, id_field): (id, key, number in the field or None) of each item with one of the ids.
put_biases(database, biases, field, id_field): writes {key: number}, and nothing else.
bias_note(address, name, k, scale, field, id_field, vector): imports and search, as `note`, that give `ranked`, lists of
(score, id), by the number in the field.
note(address, name, k, example): the import and the search of a usage note in the engine's own client. address: a Python
expression. example: a column and a value for a filter. The search turns `vectors` into `ids` and `products`.
"""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

MANY = (
    200  # at least so many candidates of the plain ranking among which a note looks for the best of the corrected one
)
TIMEOUT = 5  # seconds within which a server must answer
_KEYS = uuid.UUID("5d2f9f0e-6a0b-4d0c-9a55-6a7a8f1a3c11")

# What other programs have stored may be of any type.
Hits = list[tuple[Any, Any, Any]]  # id, label and inner product of each item found, best first; no label: None or ""
Rows = tuple[Sequence[Any], Sequence[Any], Sequence[Any] | np.ndarray]  # ids, labels and vectors of items


class Database(Protocol):
    """The collection `name` of a database, which need not exist. A copy with another name is another collection.

    Methods raise whatever the engine's client raises.
    """

    name: str

    def metadata(self, new: str | None = None) -> str | None:
        """The text stored with the collection, "" for none; None without a collection. new: stored first."""

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection with its text, empty, and remove any earlier one of that name."""

    def upsert(self, vectors: np.ndarray, columns: pa.Table) -> None:
        """Store items. An item with an existing id gets this vector and these columns, and keeps its other columns.

        vectors: (n, D + 1), float32. columns: n rows with `id`, maybe `label`, and others of text, int64, double or
        bool, in which cells may be null.
        """

    def index(self, approximate: bool) -> None:
        """Make all stored items searchable: exactly, or by the engine's approximate index."""

    def count(self) -> int:
        """The number of items."""

    def search(self, vectors: np.ndarray, k: int) -> list[Hits]:
        """The k best items of each row of vectors (Q, D + 1)."""

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""

    def scan(self) -> Iterator[Rows]:
        """All items in batches, in any order."""


def key_of(name: str) -> str:
    """The key of an item as a UUID, for engines that require one or whose client does not escape keys."""
    return str(uuid.uuid5(_KEYS, name))


def ranked(scale: float, k: int) -> str:
    """The line of a `bias_note` that ranks `rows`, lists of (id, inner product, number)."""
    return (
        f"scored = [[({scale!r} * s - bias, name) for name, s, bias in hits if bias is not None] for hits in rows]\n"
        f"ranked = [sorted(hits, reverse=True)[:{k}] for hits in scored]\n"
    )


def condition(example: tuple[str, Any], equal: str = "=", quote: str = "") -> str:
    """A condition on a column: numbers at most the value, others equal to it. quote: encloses the column's name."""
    column, value = example
    shown = str(value).lower() if isinstance(value, bool) else repr(value)
    return f"{quote}{column}{quote} {equal if isinstance(value, str | bool) else '<='} {shown}"
