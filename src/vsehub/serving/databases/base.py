"""The interface of an engine: one collection of vectors with ids, labels and facts, searched by inner product."""

import copy
import errno
import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, Self

import numpy as np

from vsehub.checks import InputError, fail, is_out_of_memory, require
from vsehub.io.address import masked
from vsehub.io.files import is_full_disk

if TYPE_CHECKING:
    import pyarrow as pa

_PLAIN = re.compile(r"[\w .-]{1,40}")  # a text that needs no escape in any engine's conditions
_KEYS = uuid.UUID("5d2f9f0e-6a0b-4d0c-9a55-6a7a8f1a3c11")
CONNECT_SECONDS = 5  # a server's time to answer
# Errors of the machine, such as a full disk: commands report these without naming the engine.
_OF_MACHINE = tuple(
    getattr(errno, name)
    for name in ("ENOSPC", "EDQUOT", "EROFS", "EACCES", "EPERM", "EIO", "EFBIG", "EMFILE", "ENFILE")
    if hasattr(errno, name)
)
_NUMBER = re.compile(r"\b(?:errno|os error) (\d+)", re.IGNORECASE)  # of a system error, in Python, C++ and Rust
_SOURCE = re.compile(r",? *\S+\.(?:rs|cc|cpp|c|h|py):\d+(?::\d+)?")  # a line of the engine's own source
# The libraries whose errors are the engine's refusals.
_CLIENTS = {"pymilvus", "milvus_lite", "grpc", "qdrant_client", "httpx", "httpcore", "lancedb", "psycopg"}


@dataclass(frozen=True)
class ItemRows:
    """Items of a collection: n ids, vectors (n, D + 1), float32, and what is stored beside them.

    labels: n texts; None: none are given. fields: n rows of further columns (`columns.read_columns`), or None.
    """

    ids: Sequence[str]
    vectors: np.ndarray
    labels: Sequence[str] | None = None
    fields: "pa.Table | None" = None

    def records(self, part: slice) -> list[dict[str, Any]]:
        """Label and further columns of each item, for engines that store documents; None: an empty cell."""
        ids = self.ids[part]
        fields = [{} for _ in ids] if self.fields is None else self.fields.slice(part.start, len(ids)).to_pylist()
        if self.labels is None:
            return fields
        return [{"label": label, **record} for label, record in zip(self.labels[part], fields, strict=True)]


@dataclass(frozen=True)
class Shape:
    """The dimension of a collection's vectors, and whether it is searched by inner product."""

    dimensions: int
    inner_product: bool


class Database(Protocol):
    """One collection in one engine. It need not exist yet; `shape` says whether it does.

    Methods raise whatever the engine's client raises; `asking` turns that into one line.
    """

    def beside(self, name: str) -> "Database":
        """Another collection of the same database, over the same connection."""

    def shape(self) -> Shape | None:
        """The collection's dimension and metric; None if there is no collection of this name."""

    def facts(self) -> str | None:
        """The text stored by `create` or `keep_facts`; None if the collection has none, and so is not vsehub's."""

    def create(self, dimensions: int, facts: str) -> None:
        """Create the empty collection."""

    def keep_facts(self, facts: str) -> None:
        """Replace the stored text."""

    def put(self, rows: ItemRows) -> None:
        """Add items; an item with a known id is replaced whole."""

    def update(self, rows: ItemRows) -> None:
        """Add items; of an item with a known id only the given parts are replaced."""

    def finish(self, approximate: bool) -> None:
        """Make all items searchable: exactly, or by the engine's approximate index."""

    def count(self) -> int:
        """The number of items."""

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """Ids and inner products of the k best items of each row of vectors (Q, D + 1), best first."""

    def remove(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""

    def read(self, ids: Sequence[str] | None = None) -> Iterator[ItemRows]:
        """All items with their labels ("" for none), or those of some ids, in batches, in any order."""

    def drop(self) -> None:
        """Remove the collection."""

    def size(self) -> int | None:
        """Bytes on disk; None where the engine does not say."""

    def close(self) -> None:
        """End the connection."""


class Named:
    """A collection that an open connection reaches by its name: the base of the engines' classes."""

    _name: str

    def beside(self, name: str) -> Self:
        """See `Database`."""
        other = copy.copy(self)
        other._name = name
        return other


@contextmanager
def asking(address: str, folder: Path | None = None) -> Iterator[None]:
    """Turn an error of an engine's client within the block into an InputError that begins with the address.

    folder: of an engine within this process, None for a server. An error of the machine, such as a full disk, becomes
    an OSError that names the folder.
    """
    try:
        yield
    except InputError:
        raise
    except Exception as error:
        number = None if folder is None else _machine_error(error)
        if number is not None:
            raise OSError(number, os.strerror(number), str(folder)) from None
        client = type(error).__module__.partition(".")[0] in _CLIENTS
        refusal = client or isinstance(error, RuntimeError | OSError | ValueError)
        if not refusal or is_full_disk(error) or is_out_of_memory(error):
            raise
        said = masked(_SOURCE.sub("", " ".join(str(error).split())))[:300]
        raise InputError(f"index_uri: {address} refuses or does not answer ({type(error).__name__}: {said})") from None


def _machine_error(error: Exception) -> int | None:
    """The number of the system error behind an engine's error; None for any other error.

    Engines in C++ and Rust, and engines behind gRPC, report only a text.
    """
    text = str(error)
    numbers = {int(number) for number in _NUMBER.findall(text)} | {getattr(error, "errno", None)}
    return next((one for one in _OF_MACHINE if one in numbers or f"({os.strerror(one)})" in text), None)


def read_items(collection: str, ids: Sequence[Any], vectors: Sequence[Any], labels: Sequence[Any]) -> ItemRows:
    """Items as an engine returns them. Raises InputError, naming the collection, for others than `put` stores."""
    try:
        matrix = np.array(vectors, np.float32)
    except (TypeError, ValueError) as error:
        raise InputError(f"index_uri: the vectors in {collection} cannot be read ({error})") from error
    require(
        all(isinstance(one, str) for one in (*ids, *labels)) and (matrix.ndim == 2 or not len(ids)),
        f"index_uri: {collection} holds items without a vector, or whose id or label is no text",
    )
    return ItemRows(ids, matrix, labels)


def key_of(name: str) -> str:
    """The key of an item as a UUID, for engines that require one or whose client does not escape keys in filters."""
    return str(uuid.uuid5(_KEYS, name))


class FilterExample(NamedTuple):
    """A condition on a column of the items, as a note shows it: numbers below a value, others equal to it."""

    column: str = "id"
    value: str | int | bool = "a"

    @classmethod
    def of(cls, fields: "pa.Table | None") -> Self:
        """One on the first of further columns (`columns.read_columns`); on the ids where there are none."""
        if fields is None:
            return cls()
        name, kind = fields.column_names[0], str(fields.schema.field(0).type)
        if kind != "string":
            return cls(name, True if kind == "bool" else 10)
        entry = next((one for one in fields.column(0).to_pylist() if one and _PLAIN.fullmatch(one)), cls().value)
        return cls(name, entry)

    @property
    def below(self) -> bool:
        """Whether the value is a number, which the column is to be below."""
        return type(self.value) is int

    def text(self, quote: str = "", equal: str = "=") -> str:
        """The condition in SQL or in Milvus's expressions. quote: what encloses a name with capital letters."""
        name = self.column if self.column.islower() else f"{quote}{self.column}{quote}"
        shown = str(self.value).lower() if isinstance(self.value, bool) else repr(self.value)
        return f"{name} {'<' if self.below else equal} {shown}"


def folder_size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def own_folder(path: Path, engine: str, holds: Sequence[str]) -> None:
    """Raise InputError unless `path` is absent, an empty folder, or has an entry of `holds`, patterns of the engine."""
    if not path.exists():
        return
    if not path.is_dir() or (any(path.iterdir()) and not any(found for one in holds for found in path.glob(one))):
        fail(f"index_uri: {path} is not a folder of {engine}; give a new one, or one that {engine} wrote")
