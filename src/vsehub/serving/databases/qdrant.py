"""Qdrant: a folder (the client's local mode, which searches every vector in Python) or a server by its URI."""

import os
import pickletools
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import InputError, require
from vsehub.serving.databases.base import CONNECT_SECONDS, Named, Rows, Shape, folder_size, key_of, own_folder

BATCH = 500
PATIENCE = 300  # seconds for one request, once a server has answered
_KEY = "vsehub"
_LINKS = 32  # of an item in the graph of a server; 0: no graph, every vector is compared


class Qdrant(Named):
    """A collection of Qdrant. The key of a server: QDRANT_API_KEY."""

    def __init__(self, uri: str, name: str, embedded: bool):
        from qdrant_client import QdrantClient

        self._folder = Path(uri) if embedded else None
        if self._folder is not None:
            own_folder(self._folder, "Qdrant", ("meta.json",))
            _require_plain_points(self._folder)
            self._client = QdrantClient(path=uri)
        else:
            settings: dict[str, Any] = {
                "url": uri,
                "api_key": os.environ.get("QDRANT_API_KEY"),
                "check_compatibility": False,
            }
            with closing(QdrantClient(timeout=CONNECT_SECONDS, **settings)) as asked:
                asked.get_collections()
            self._client = QdrantClient(timeout=PATIENCE, **settings)
        self._name = name

    def shape(self) -> Shape | None:
        """See `Database`."""
        from qdrant_client.models import Distance, VectorParams

        if not self._client.collection_exists(self._name):
            return None
        vectors = self._client.get_collection(self._name).config.params.vectors
        if not isinstance(vectors, VectorParams):
            return Shape(0, False)
        return Shape(vectors.size, vectors.distance == Distance.DOT)

    def facts(self) -> str | None:
        """See `Database`."""
        return (self._client.get_collection(self._name).config.metadata or {}).get(_KEY)

    def create(self, dimensions: int, facts: str) -> None:
        """See `Database`."""
        from qdrant_client.models import Distance, HnswConfigDiff, VectorParams

        vectors = VectorParams(size=dimensions, distance=Distance.DOT)
        # Without a graph while it is filled, which is faster; `finish` adds it.
        self._client.create_collection(self._name, vectors, hnsw_config=HnswConfigDiff(m=0), metadata={_KEY: facts})

    def keep_facts(self, facts: str) -> None:
        """See `Database`."""
        self._client.update_collection(self._name, metadata={_KEY: facts})

    def put(self, rows: Rows) -> None:
        """See `Database`."""
        from qdrant_client.models import Batch

        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            texts = zip(rows.ids[part], rows.labels[part], strict=True)
            payloads = [{"id": one, "label": label} for one, label in texts]
            points: list[Any] = [key_of(one) for one in rows.ids[part]]
            self._client.upsert(
                self._name, Batch(ids=points, vectors=rows.vectors[part].tolist(), payloads=payloads), wait=True
            )

    def finish(self, approximate: bool) -> None:
        """See `Database`; a server builds its graph in the background."""
        from qdrant_client.models import HnswConfigDiff

        if self._folder is None and approximate:
            self._client.update_collection(self._name, hnsw_config=HnswConfigDiff(m=_LINKS))

    def count(self) -> int:
        """See `Database`."""
        return self._client.count(self._name, exact=True).count

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        from qdrant_client.models import QueryRequest

        found: list[list[tuple[str, float]]] = []
        for start in range(0, len(vectors), BATCH):
            asked = [
                QueryRequest(query=one, limit=k, with_payload=["id"]) for one in vectors[start : start + BATCH].tolist()
            ]
            answers = self._client.query_batch_points(self._name, asked)
            found += [[((hit.payload or {})["id"], hit.score) for hit in answer.points] for answer in answers]
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        from qdrant_client.models import PointIdsList

        for start in range(0, len(ids), BATCH):
            points = PointIdsList(points=[key_of(one) for one in ids[start : start + BATCH]])
            self._client.delete(self._name, points, wait=True)

    def read(self, ids: Sequence[str] | None = None) -> Iterator[Rows]:
        """See `Database`."""
        if ids is not None:
            for start in range(0, len(ids), BATCH):
                points = [key_of(one) for one in ids[start : start + BATCH]]
                yield _rows(self._client.retrieve(self._name, points, with_vectors=True))
            return
        place: Any = None
        while True:
            found, place = self._client.scroll(self._name, limit=BATCH, offset=place, with_vectors=True)
            yield _rows(found)
            if place is None:
                return

    def drop(self) -> None:
        """See `Database`."""
        self._client.delete_collection(self._name)

    def size(self) -> int | None:
        """See `Database`."""
        return None if self._folder is None else folder_size(self._folder)

    def close(self) -> None:
        """See `Database`."""
        self._client.close()


def _rows(found: Sequence[Any]) -> Rows:
    vectors = np.array([one.vector for one in found], np.float32)
    return Rows([one.payload["id"] for one in found], [one.payload["label"] for one in found], vectors)


# How the local mode's pickle of a point begins, and what may follow until its end: data and references to it.
_BEGINNING = [
    ("SHORT_BINUNICODE", "qdrant_client.http.models.models"),
    ("SHORT_BINUNICODE", "PointStruct"),
    ("STACK_GLOBAL", None),
    ("EMPTY_TUPLE", None),
    ("NEWOBJ", None),
]
_DATA = frozenset(
    (
        *("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "BINFLOAT", "BININT", "BININT1", "BININT2", "LONG1"),
        *("NONE", "NEWTRUE", "NEWFALSE", "EMPTY_DICT", "EMPTY_LIST", "EMPTY_SET", "EMPTY_TUPLE", "MARK"),
        *("SETITEM", "SETITEMS", "APPEND", "APPENDS", "ADDITEMS", "BINGET", "LONG_BINGET"),
    )
)


def _require_plain_points(folder: Path) -> None:
    """Raise InputError if a stored point, a pickle that the client would carry out, is more than a point."""
    for file in folder.glob("collection/*/storage.sqlite"):
        try:
            with closing(sqlite3.connect(f"{file.absolute().as_uri()}?mode=ro", uri=True)) as base:
                plain = all(_is_plain(point) for (point,) in base.execute("SELECT point FROM points"))
        except (sqlite3.Error, ValueError, TypeError, IndexError, UnicodeError) as error:
            raise InputError(f"index_uri: {file} is damaged ({error}); it was not opened") from error
        require(plain, f"index_uri: {file} holds what Qdrant's local mode does not write; it was not opened")


def _is_plain(point: bytes) -> bool:
    """Whether a pickle makes a point and nothing else: its steps are read, and none is carried out."""
    steps = [(step.name, value) for step, value, _ in pickletools.genops(point)]
    steps = [step for step in steps if step[0] not in ("PROTO", "FRAME", "MEMOIZE")]
    first, middle, last = steps[:5], steps[5:-2], steps[-2:]
    return first == _BEGINNING and {name for name, _ in middle} <= _DATA and last == [("BUILD", None), ("STOP", None)]


def note(uri: str, name: str, k: int) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    server = "://" in uri
    opened = f'url={uri!r}, api_key=os.environ.get("QDRANT_API_KEY")' if server else f"path={uri!r}"
    return (
        f"{'import os' + chr(10) * 2 if server else ''}import numpy as np\n"
        "from qdrant_client import QdrantClient, models\n",
        f"client = QdrantClient({opened})\n"
        f"asked = [models.QueryRequest(query=one.tolist(), limit={k}, with_payload=True) for one in vectors]\n"
        f'found = client.query_batch_points("{name}", asked)\n'
        f'ids = [[hit.payload["id"] for hit in answer.points] for answer in found]\n'
        f"products = np.array([[hit.score for hit in answer.points] for answer in found])\n",
    )
