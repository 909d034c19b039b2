"""The engines by name: what each needs, where it keeps its files, and opening a collection in one."""

import re
from contextlib import AbstractContextManager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

from vsehub.checks import fail, require
from vsehub.extras import require_packages
from vsehub.io.address import Address
from vsehub.serving.databases.base import Database, FilterExample, asking

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,49}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True)
class DatabaseEngine:
    """An engine.

    title: its name in texts. factory: the class of its collections, in the module of the engine's name. packages: the
    modules that its extra installs. file: its folder in `out`; None if it needs a server. schemes: of the URIs that it
    takes. ending: of the name of any folder of it. server: an example of a server's URI. no_folder: the reason why it
    needs a server.
    """

    title: str
    factory: str
    packages: tuple[str, ...]
    file: str | None
    schemes: tuple[str, ...]
    ending: str = ""
    server: str = ""
    no_folder: str = ""


ENGINES = {
    "milvus": DatabaseEngine(
        "Milvus",
        "Milvus",
        ("pymilvus", "milvus_lite"),
        "index.milvus.db",
        ("http", "https", "tcp"),
        ".db",
    ),
    "lancedb": DatabaseEngine("LanceDB", "LanceDB", ("lancedb",), "index.lancedb", ("db", "s3", "gs", "az")),
    "qdrant": DatabaseEngine(
        "Qdrant",
        "Qdrant",
        ("qdrant_client",),
        None,
        ("http", "https"),
        server="http://HOST:6333",
        no_folder="; its makers call the client's folder mode one for prototypes, and it stores pickles, which can run "
        "code when a folder is opened. Start a server, or choose milvus or lancedb, which fill folders",
    ),
    "pgvector": DatabaseEngine(
        "Postgres",
        "PGVector",
        ("psycopg", "pgvector"),
        None,
        ("postgresql", "postgres"),
        server="postgresql://USER@HOST/DATABASE",
    ),
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
        object.__setattr__(self, "uri", Address(self.uri))
        engine = ENGINES.get(self.engine)
        if engine is None:
            fail(f"index is {self.engine!r}; choose one of {', '.join(ENGINES)}")
        require_packages(f"index={self.engine}", self.engine, *engine.packages)
        require(
            _NAME.fullmatch(self.name) is not None,
            f"index_name is {self.name!r}; expected at most 50 letters, digits and underscores, no digit first",
        )
        kinds = ", ".join(f"{scheme}://" for scheme in engine.schemes)
        scheme = self.uri.partition("://")[0].lower() if self.served else None
        require(
            scheme in engine.schemes if self.served else engine.file is not None,
            f"index_uri is {self.uri}; {engine.title} takes {kinds}"
            f"{' or a folder' if engine.file else '' if self.served else engine.no_folder}",
        )
        require(
            self.served or self.uri.endswith(engine.ending),
            f"index_uri is {self.uri}; the name of a folder of {engine.title} ends in {engine.ending}",
        )

    @property
    def served(self) -> bool:
        """Whether the collection is behind a URI, not in a folder of this machine."""
        return _SCHEME.match(self.uri) is not None

    @property
    def address(self) -> str:
        """The place in words, its address masked."""
        return f"{self.name} at {self.uri}"

    @property
    def exists(self) -> bool:
        """Whether there may be a collection: False for a missing folder."""
        return self.served or Path(self.uri).exists()

    def asking(self) -> AbstractContextManager[None]:
        """A context in which errors of the engine name this place; see `base.asking`."""
        return asking(self.address, None if self.served else Path(self.uri))

    def opened(self) -> Database:
        """The collection, which need not exist yet. Raises InputError if the engine does not answer."""
        module = import_module(f"vsehub.serving.databases.{self.engine}")
        uri = Address(self.uri).opened("index_uri")
        with self.asking():
            opened: Database = getattr(module, ENGINES[self.engine].factory)(uri, self.name, not self.served)
            return opened

    def note(self, uri: str, k: int, example: FilterExample) -> tuple[str, str]:
        """The imports and the search of a usage note in the engine's own client, which opens `uri`."""
        module = import_module(f"vsehub.serving.databases.{self.engine}")
        return without_secret(uri, *module.note(uri, self.name, k, example))


def without_secret(uri: str, imports: str, search: str) -> tuple[str, str]:
    """Imports and code of a note, which take an address with a secret from the environment."""
    if not Address(uri).is_masked:
        return imports, search
    imports = imports if "import os\n" in imports else f"import os\n\n{imports}"
    why = "# The address holds a secret, which is not written here: set INDEX_URI to what index_uri= was.\n"
    return imports, why + search.replace(repr(str(uri)), 'os.environ["INDEX_URI"]')


def placed(engine: str, uri: str | None, name: str, folder: Path | None) -> Place:
    """The place of a collection. Raises InputError as `Place` does.

    uri: None for a folder in `folder`, where there is one and the engine has an embedded form.
    """
    known = ENGINES.get(engine)
    if uri is not None or known is None:
        return Place(engine, str(uri), name)
    if known.file is None:
        fail(f"index_uri is not set; {known.title} needs a server: give index_uri={known.server}{known.no_folder}")
    if folder is None:
        fail(f"index_uri is not set; give the server, or the folder of {known.title}, that rerank filled")
    return Place(engine, str(folder / known.file), name)
