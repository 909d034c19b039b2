"""Qdrant: a server by its URI. The client's local mode, which unpickles what a folder holds, is never used."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from vsehub.serving.databases.base import CONNECT_SECONDS, FilterExample, ItemRows, Named, Shape, key_of, read_items

BATCH = 500
PATIENCE = 300  # seconds for one request, once a server has answered
_KEY = "vsehub"
_LINKS = 32  # of an item in the graph of a server; 0: no graph, every vector is compared


class Qdrant(Named):
    """A collection of Qdrant. The key of a server: QDRANT_API_KEY."""

    def __init__(self, uri: str, name: str, embedded: bool):
        from qdrant_client import QdrantClient

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
        # Filling is faster without a graph; `finish` adds one.
        self._client.create_collection(self._name, vectors, hnsw_config=HnswConfigDiff(m=0), metadata={_KEY: facts})

    def keep_facts(self, facts: str) -> None:
        """See `Database`."""
        self._client.update_collection(self._name, metadata={_KEY: facts})

    def put(self, rows: ItemRows) -> None:
        """See `Database`."""
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            self._put(rows, part, [{} for _ in rows.ids[part]])

    def update(self, rows: ItemRows) -> None:
        """See `Database`; Qdrant replaces whole payloads, so that earlier ones are read."""
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            found = self._client.retrieve(self._name, [key_of(one) for one in rows.ids[part]])
            earlier = {one.id: one.payload or {} for one in found}
            self._put(rows, part, [earlier.get(key_of(one), {}) for one in rows.ids[part]])

    def _put(self, rows: ItemRows, part: slice, earlier: Sequence[dict[str, Any]]) -> None:
        """Store some rows; missing parts come from earlier payloads."""
        from qdrant_client.models import Batch

        points: list[Any] = [key_of(one) for one in rows.ids[part]]
        given = zip(rows.ids[part], earlier, rows.records(part), strict=True)
        payloads = [{"label": ""} | before | record | {"id": one} for one, before, record in given]
        self._client.upsert(
            self._name, Batch(ids=points, vectors=rows.vectors[part].tolist(), payloads=payloads), wait=True
        )

    def finish(self, approximate: bool) -> None:
        """See `Database`; a server builds its graph in the background."""
        from qdrant_client.models import HnswConfigDiff

        if approximate:
            self._client.update_collection(self._name, hnsw_config=HnswConfigDiff(m=_LINKS))

    def count(self) -> int:
        """See `Database`."""
        return self._client.count(self._name, exact=True).count

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        from qdrant_client.models import QueryRequest

        found: list[list[tuple[Any, float]]] = []
        for start in range(0, len(vectors), BATCH):
            asked = [
                QueryRequest(query=one, limit=k, with_payload=["id"]) for one in vectors[start : start + BATCH].tolist()
            ]
            answers = self._client.query_batch_points(self._name, asked)
            found += [[((hit.payload or {}).get("id"), hit.score) for hit in answer.points] for answer in answers]
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        from qdrant_client.models import PointIdsList

        for start in range(0, len(ids), BATCH):
            points = PointIdsList(points=[key_of(one) for one in ids[start : start + BATCH]])
            self._client.delete(self._name, points, wait=True)

    def read(self, ids: Sequence[str] | None = None) -> Iterator[ItemRows]:
        """See `Database`."""
        if ids is not None:
            for start in range(0, len(ids), BATCH):
                points = [key_of(one) for one in ids[start : start + BATCH]]
                yield _rows(self._name, self._client.retrieve(self._name, points, with_vectors=True))
            return
        place: Any = None
        while True:
            found, place = self._client.scroll(self._name, limit=BATCH, offset=place, with_vectors=True)
            yield _rows(self._name, found)
            if place is None:
                return

    def size(self) -> int | None:
        """See `Database`; a server does not say."""
        return None

    def close(self) -> None:
        """See `Database`."""
        self._client.close()

    def drop(self) -> None:
        """See `Database`."""
        self._client.delete_collection(self._name)


def _rows(name: str, found: Sequence[Any]) -> ItemRows:
    payloads = [one.payload or {} for one in found]
    ids, labels = [one.get("id") for one in payloads], [one.get("label") or "" for one in payloads]
    return read_items(name, ids, [one.vector for one in found], labels)


def note(uri: str, name: str, k: int, example: FilterExample) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    value = f"range=models.Range(lt={example.value})"
    value = value if example.below else f"match=models.MatchValue(value={example.value!r})"
    return (
        "import os\n\nimport numpy as np\nfrom qdrant_client import QdrantClient, models\n",
        f'client = QdrantClient(url={uri!r}, api_key=os.environ.get("QDRANT_API_KEY"))\n'
        f"only = None  # the items that are searched: models.Filter(must=[models.FieldCondition(\n"
        f"#     key={example.column!r}, {value})]), for example; None for all\n"
        f"ask = dict(limit={k}, with_payload=True, filter=only)\n"
        f"asked = [models.QueryRequest(query=one.tolist(), **ask) for one in vectors]\n"
        f'found = client.query_batch_points("{name}", asked)\n'
        f'ids = [[hit.payload["id"] for hit in answer.points] for answer in found]\n'
        f"products = np.array([[hit.score for hit in answer.points] for answer in found])\n",
    )
