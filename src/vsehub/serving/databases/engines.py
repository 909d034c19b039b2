"""The engines by name, their interface, and the location of a collection.

An engine is a module of this package, named in `ENGINES`, with these functions:

connect(uri, name): a context manager that opens a `Database`.
note(uri_code, name, k): the import and the search of a usage note in the engine's own client. uri_code: the URI as a
Python expression. The search turns `vectors` into `ids` and `products`.
read_biases(database, ids, field): (id, key, number in the field or None) of each item with one of the ids.
put_biases(database, biases, field): writes {key: number}, and nothing else.
bias_note(uri_code, name, k, scale, field, vector): imports and search, as `note`, that give `ranked`, lists of
(score, id), by the number in the field.
"""

import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Any, NamedTuple, Protocol

import numpy as np

from vsehub.checks import InputError, fail, one_of, require
from vsehub.extras import require_packages
from vsehub.io.address import is_uri, masked, remember

RERANKED = 200  # fewest items of the plain ranking that a note reranks
TIMEOUT = 5  # seconds within which a server must answer
_KEYS = uuid.UUID("5d2f9f0e-6a0b-4d0c-9a55-6a7a8f1a3c11")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")

# Values that other programs stored may be of any type.
Hits = list[tuple[Any, Any, Any]]  # id, label and inner product of each item found, best first; no label: None or ""
Rows = tuple[Sequence[Any], Sequence[Any] | np.ndarray]  # ids and vectors of items


class Database(Protocol):
    """The collection `name` of a database, which need not exist. A copy with another name is another collection.

    client: the engine's own. Methods raise whatever it raises.
    """

    client: Any
    name: str

    def __init__(self, client: Any, name: str):
        self.client, self.name = client, name

    def metadata(self) -> str | None:
        """The text stored with the collection, "" for none; None without a collection."""

    def store_metadata(self, text: str) -> None:
        """Replace the text stored with the collection."""

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection with its text, empty, and remove any earlier one of that name."""

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, labels: Sequence[str] | None = None) -> None:
        """Store items with their vectors (n, D + 1), float32.

        An item with an existing id gets this vector and label, and keeps its other columns, and its label if none is
        given.
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


class DatabaseEngine(NamedTuple):
    """The properties of an engine.

    title: its name in texts. client: the packages of its client, as pip takes them. packages: their modules. schemes:
    schemes of its URIs. folder: the name of its folder in a result; None if it needs a server.
    """

    title: str
    client: str
    packages: tuple[str, ...]
    schemes: tuple[str, ...]
    folder: str | None = None


# Qdrant needs a server: its client could open a folder, but would unpickle the files in it.
ENGINES = {
    "milvus": DatabaseEngine(
        "Milvus", "pymilvus milvus-lite", ("pymilvus", "milvus_lite"), ("http", "https", "tcp"), "index.milvus.db"
    ),
    "lancedb": DatabaseEngine("LanceDB", "lancedb", ("lancedb",), ("db", "s3", "gs", "az"), "index.lancedb"),
    "qdrant": DatabaseEngine("Qdrant", "qdrant-client", ("qdrant_client",), ("http", "https")),
    "pgvector": DatabaseEngine(
        "Postgres", "'psycopg[binary]' pgvector", ("psycopg", "pgvector"), ("postgresql", "postgres")
    ),
}


@dataclass(frozen=True)
class Location:
    """The engine, URI or folder, and name of a collection.

    Raises InputError for an unknown engine, a missing package, and an invalid URI or name.
    """

    engine: str
    uri: str
    name: str

    def __post_init__(self) -> None:
        engine = ENGINES[self.engine]
        require_packages(f"engine={self.engine}", self.engine, *engine.packages)
        remember(self.uri)
        require(
            _NAME.fullmatch(self.name) is not None,
            f"collection is {self.name!r}; expected at most 50 letters, digits and underscores, no digit first",
        )
        require(
            self.uri.partition("://")[0].lower() in engine.schemes if self.served else engine.folder is not None,
            f"uri is {masked(self.uri)}; {engine.title} takes {'://, '.join(engine.schemes)}://"
            + (" or a folder" if engine.folder else ""),
        )

    @property
    def served(self) -> bool:
        """True if the collection is behind a URI, not in a folder of this machine."""
        return is_uri(self.uri)

    @property
    def title(self) -> str:
        """The name and the masked URI, for messages and records."""
        return f"{self.name} at {masked(self.uri)}"

    def uri_code(self, folder: Path) -> str:
        """The URI as a Python expression: a folder that must exist, or a variable instead of a secret.

        The path of a collection in `folder` is relative to it.
        """
        if masked(self.uri) != self.uri:
            return 'os.environ["INDEX_URI"]'
        if self.served:
            return repr(self.uri)
        path, here = Path(self.uri).absolute(), folder.absolute()
        path = path.relative_to(here) if path.is_relative_to(here) else path
        return f"str(Path({str(path)!r}).resolve(strict=True))"

    @property
    def module(self) -> Any:
        """The module of the engine."""
        return import_module(f"vsehub.serving.databases.{self.engine}")

    @contextmanager
    def connect(self) -> Iterator[Database]:
        """Open the collection; within the block, errors of the engine's client become InputError."""
        if not self.served:
            Path(self.uri).parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.module.connect(self.uri, self.name) as database:
                yield database
        except Exception as error:
            # The clients' exceptions have no common base: the modules of the traceback say whether a client raised.
            raisers = {frame.f_globals["__name__"].partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
            if isinstance(error, InputError) or raisers.isdisjoint(ENGINES[self.engine].packages):
                raise
            message = masked(" ".join(str(error).split()))[:500]
            raise InputError(f"uri: {self.title}: {type(error).__name__}: {message}") from error


def key_of(name: str) -> str:
    """The key of an item as a UUID, for engines that require one or whose client does not escape keys."""
    return str(uuid.uuid5(_KEYS, name))


def ranking_code(scale: float, k: int) -> str:
    """The lines of a `bias_note` that rank `rows`, lists of (id, inner product, number)."""
    return (
        f"scored = [[({scale!r} * s - bias, name) for name, s, bias in hits if bias is not None] for hits in rows]\n"
        f"ranked = [sorted(hits, reverse=True)[:{k}] for hits in scored]\n"
    )


def note_code(imports: str, queries: str, dim: int | str, search: str) -> str:
    """The Python of a note, with the imports that it needs. queries: the file. search: the lines after its reading."""
    imported = {"os.environ": "import os\n\n", "Path(": "from pathlib import Path\n\n"}
    standard = next((line for use, line in imported.items() if use in search), "")
    secret = "# The address holds a secret, which is not written here: set INDEX_URI to what uri= was.\n"
    return (
        f"{standard}import numpy as np\n{imports}\n{secret if 'INDEX_URI' in search else ''}"
        f'queries = np.load({queries!r}).astype("float32")  # (Q, {dim})\n{search}'
    )


def location_of(engine: str, uri: Any, name: str | None, folder: Path | None = None) -> Location:
    """The location of a collection. uri: None for a folder in `folder`. name: None for "vsehub".

    Raises InputError as `Location`, or without a URI and a folder.
    """
    one_of("engine", engine, tuple(ENGINES))
    folder_name = ENGINES[engine].folder
    if uri is None and folder is not None and folder_name is not None:
        uri = folder / folder_name
    if uri is None:
        fail(f"uri is not set; give the server{' or folder' if folder_name else ''} of {ENGINES[engine].title}")
    return Location(engine, str(uri), str(name or "vsehub"))
