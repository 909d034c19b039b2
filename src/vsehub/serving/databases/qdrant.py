"""Qdrant: a server by its URI. The client's local mode, which unpickles what a folder holds, is never used."""

import os
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import qdrant_client
from qdrant_client import models

from vsehub.serving.databases.engines import RERANKED, TIMEOUT, Database, Hits, Rows, key_of

_BATCH = 500
_REQUEST_TIMEOUT = 300  # seconds, once a server has answered within TIMEOUT
_KEY = "vsehub"
_CANDIDATES = 128  # of a query in the graph
_LINKS = 32  # of an item in the graph of a server; 0: no graph, every vector is compared


@contextmanager
def connect(uri: str, name: str) -> Iterator["Qdrant"]:
    """Open the collection. The API key of a server: QDRANT_API_KEY."""
    settings: dict[str, Any] = {"url": uri, "api_key": os.environ.get("QDRANT_API_KEY"), "check_compatibility": False}
    with closing(qdrant_client.QdrantClient(timeout=TIMEOUT, **settings)) as client:
        client.get_collections()
    with closing(qdrant_client.QdrantClient(timeout=_REQUEST_TIMEOUT, **settings)) as client:
        yield Qdrant(client, name)


class Qdrant(Database):
    """A Qdrant collection."""

    def metadata(self) -> str | None:
        """Return the stored text."""
        if not self.client.collection_exists(self.name):
            return None
        return str((self.client.get_collection(self.name).config.metadata or {}).get(_KEY, ""))

    def store_metadata(self, text: str) -> None:
        """Replace the stored text."""
        self.client.update_collection(self.name, metadata={_KEY: text})

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection, empty, and remove any earlier one of that name."""
        self.client.delete_collection(self.name)
        vectors = models.VectorParams(size=dimensions, distance=models.Distance.DOT)
        # Filling is faster without a graph; `index` adds one.
        unlinked = models.HnswConfigDiff(m=0)
        self.client.create_collection(self.name, vectors, hnsw_config=unlinked, metadata={_KEY: metadata})

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, labels: Sequence[str] | None = None) -> None:
        """Store items; Qdrant replaces whole payloads, so earlier payloads are read first."""
        keys = list(map(key_of, ids))
        earlier = {str(point.id): point.payload or {} for point in self.client.retrieve(self.name, keys)}
        payloads = [earlier.get(key, {}) | {"id": name} for key, name in zip(keys, ids, strict=True)]
        if labels is not None:
            for payload, label in zip(payloads, labels, strict=True):
                payload["label"] = label
        self.client.upload_collection(self.name, vectors, payloads, keys, batch_size=_BATCH, wait=True)

    def index(self, approximate: bool) -> None:
        """Make all stored items searchable; a server builds its graph in the background."""
        if approximate:
            self.client.update_collection(self.name, hnsw_config=models.HnswConfigDiff(m=_LINKS))

    def count(self) -> int:
        """Return the number of items."""
        return int(self.client.count(self.name, exact=True).count)

    def search(self, vectors: np.ndarray, k: int) -> list[Hits]:
        """Return the k best items of each row of vectors."""
        options = models.SearchParams(hnsw_ef=_CANDIDATES)
        requests = [
            models.QueryRequest(query=query, limit=k, with_payload=["id", "label"], params=options)
            for query in vectors.tolist()
        ]
        answers = self.client.query_batch_points(self.name, requests)
        return [
            [(hit.payload["id"], hit.payload.get("label"), hit.score) for hit in answer.points] for answer in answers
        ]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""
        self.client.delete(self.name, [key_of(name) for name in ids], wait=True)

    def scan(self) -> Iterator[Rows]:
        """Yield all items in batches."""
        offset = None
        while True:
            points, offset = self.client.scroll(self.name, limit=_BATCH, offset=offset, with_vectors=True)
            yield [point.payload["id"] for point in points], [point.vector for point in points]
            if offset is None:
                return


def read_biases(database: Qdrant, ids: list[str], field: str) -> list[tuple[str, Any, Any]]:
    """Return (id, key, number in the field or None) of each point with one of the ids."""
    keys = [int(name) if name.isdecimal() else name for name in ids]
    points = database.client.retrieve(database.name, keys, with_payload=[field])
    return [(str(point.id), point.id, point.payload.get(field)) for point in points]


def put_biases(database: Qdrant, biases: dict[Any, float], field: str) -> None:
    """Write {key: number} and change nothing else."""
    changes = [
        models.SetPayloadOperation(set_payload=models.SetPayload(payload={field: bias}, points=[key]))
        for key, bias in biases.items()
    ]
    database.client.batch_update_points(database.name, changes, wait=True)


def bias_note(uri_code: str, name: str, k: int, scale: float, field: str, vector: str | None) -> tuple[str, str]:
    """Return the imports and the search of a note that ranks by the stored biases."""
    using = f", using={vector!r}" if vector else ""
    return (
        "from qdrant_client import QdrantClient, models\n",
        f'client = QdrantClient(url={uri_code}, api_key=os.environ.get("QDRANT_API_KEY"))\n'
        f"score = models.MultExpression(mult=[{scale!r}, '$score'])\n"
        f"score = models.FormulaQuery(formula=models.SumExpression(sum=[score, models.NegExpression(neg={field!r})]))\n"
        f"empty = models.IsEmptyCondition(is_empty=models.PayloadField(key={field!r}))\n"
        f"options = dict(limit={max(RERANKED, 4 * k)}, filter=models.Filter(must_not=[empty]){using})\n"
        f"near = [models.Prefetch(query=row.tolist(), **options) for row in queries]\n"
        f'lists = [client.query_points("{name}", prefetch=fetch, query=score, limit={k}) for fetch in near]\n'
        f"ranked = [[(hit.score, hit.id) for hit in hits.points] for hits in lists]\n",
    )


def note(uri_code: str, name: str, k: int) -> tuple[str, str]:
    """Return the import and the search of a usage note."""
    return (
        "from qdrant_client import QdrantClient, models\n",
        f'client = QdrantClient(url={uri_code}, api_key=os.environ.get("QDRANT_API_KEY"))\n'
        f"only = None  # all items, or a condition: models.Filter(must_not=[models.FieldCondition(\n"
        f"#     key='label', match=models.MatchValue(value=''))]), for example\n"
        f"options = dict(limit={k}, with_payload=True, filter=only)\n"
        f"requests = [models.QueryRequest(query=vector.tolist(), **options) for vector in vectors]\n"
        f'lists = client.query_batch_points("{name}", requests)\n'
        f'ids = [[hit.payload["id"] for hit in answer.points] for answer in lists]\n'
        f"products = np.array([[hit.score for hit in answer.points] for answer in lists])\n",
    )
