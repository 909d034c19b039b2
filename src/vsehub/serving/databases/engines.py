"""The engines by name, and the place of a collection in one."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from typing import Any

from vsehub.checks import InputError, fail, one_of, require
from vsehub.extras import require_packages
from vsehub.io.address import MASK, Address, masked
from vsehub.serving.databases.base import Database

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class DatabaseEngine:
    """title: its name in texts. packages: the modules that its extra installs. schemes: of its URIs. folder: the name
    of its folder in `out`; None if it needs a server.
    """

    title: str
    packages: tuple[str, ...]
    schemes: tuple[str, ...]
    folder: str | None = None


# The client of Qdrant also opens folders, by unpickling what they hold: a server only.
ENGINES = {
    "milvus": DatabaseEngine("Milvus", ("pymilvus", "milvus_lite"), ("http", "https", "tcp"), "index.milvus.db"),
    "lancedb": DatabaseEngine("LanceDB", ("lancedb",), ("db", "s3", "gs", "az"), "index.lancedb"),
    "qdrant": DatabaseEngine("Qdrant", ("qdrant_client",), ("http", "https")),
    "pgvector": DatabaseEngine("Postgres", ("psycopg", "pgvector"), ("postgresql", "postgres")),
}


@dataclass(frozen=True)
class Place:
    """The engine, URI or folder, and name of a collection.

    Raises InputError for an unknown engine, if a package of it is missing, and for a URI or a name that it cannot take.
    """

    engine: str
    uri: str
    name: str

    def __post_init__(self) -> None:
        one_of("engine", self.engine, tuple(ENGINES))
        engine = ENGINES[self.engine]
        require_packages(f"engine={self.engine}", self.engine, *engine.packages)
        object.__setattr__(self, "uri", Address(self.uri))
        require(
            _NAME.fullmatch(self.name) is not None,
            f"collection is {self.name!r}; expected at most 50 letters, digits and underscores, no digit first",
        )
        schemes = ", ".join(f"{scheme}://" for scheme in engine.schemes)
        require(
            self.uri.partition("://")[0].lower() in engine.schemes if self.served else engine.folder is not None,
            f"uri is {self.uri}; {engine.title} takes {schemes}{' or a folder' if engine.folder else ''}",
        )

    @property
    def served(self) -> bool:
        """True if the collection is behind a URI, not in a folder of this machine."""
        return _SCHEME.match(self.uri) is not None

    @property
    def address(self) -> str:
        """The place in words, its URI masked."""
        return f"{self.name} at {self.uri}"

    @property
    def exists(self) -> bool:
        """True if there may be a collection: False for a missing folder."""
        return self.served or Path(self.uri).exists()

    @property
    def bytes(self) -> int | None:
        """The size of the folder; None for a server, which may not say."""
        if self.served:
            return None
        return sum(file.stat().st_size for file in Path(self.uri).rglob("*") if file.is_file())

    @property
    def code(self) -> str:
        """The URI as a Python expression: a folder that must exist, or a variable instead of a secret."""
        if MASK in Address(self.uri):
            return 'os.environ["INDEX_URI"]'
        folder = f"str(Path({str(Path(self.uri).absolute())!r}).resolve(strict=True))"
        return repr(str(self.uri)) if self.served else folder

    @property
    def module(self) -> Any:
        """The module of the engine."""
        return import_module(f"vsehub.serving.databases.{self.engine}")

    @contextmanager
    def connect(self) -> Iterator[Database]:
        """The collection within the block, in which an error of the engine's client becomes an InputError."""
        if not self.served:
            Path(self.uri).parent.mkdir(parents=True, exist_ok=True)
        try:
            with self.module.connect(Address(self.uri).opened("uri"), self.name) as database:
                yield database
        except Exception as error:
            raisers = {frame.f_globals["__name__"].partition(".")[0] for frame, _ in walk_tb(error.__traceback__)}
            if isinstance(error, InputError) or raisers.isdisjoint(ENGINES[self.engine].packages):
                raise
            said = masked(" ".join(str(error).split()))[:500]
            raise InputError(f"uri: {self.address}: {type(error).__name__}: {said}") from error


def note_code(imports: str, queries: str, dim: int | str, search: str) -> str:
    """The Python of a note, with the imports that it needs. queries: the file. search: the lines after its reading."""
    standard = (
        "import os\n\n" if "os.environ" in search else "from pathlib import Path\n\n" if "Path(" in search else ""
    )
    secret = "# The address holds a secret, which is not written here: set INDEX_URI to what uri= was.\n"
    return (
        f"{standard}import numpy as np\n{imports}\n{secret if 'INDEX_URI' in search else ''}"
        f'queries = np.load({queries!r}).astype("float32")  # (Q, {dim})\n{search}'
    )


def placed(engine: str, uri: str | None, name: str, folder: Path | None) -> Place:
    """The place of a collection. uri: None for a folder in `folder`. Raises InputError as `Place`, or without both."""
    one_of("engine", engine, tuple(ENGINES))
    in_folder = ENGINES[engine].folder
    if uri is None and folder is not None and in_folder is not None:
        uri = str(folder / in_folder)
    if uri is None:
        fail(f"uri is not set; give the server{' or folder' if in_folder else ''} of {ENGINES[engine].title}")
    return Place(engine, uri, name)
