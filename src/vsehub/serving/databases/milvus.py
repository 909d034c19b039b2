"""Milvus: Milvus Lite in a folder whose name ends in .db, or a server by its URI."""

import json
import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from milvus_lite.server_manager import server_manager_instance
from pymilvus import DataType, MilvusClient

from vsehub.checks import require
from vsehub.serving.databases.engines import RERANKED, TIMEOUT, Database, Hits, Rows, key_of, ranking_code

_BATCH = 1000  # items in one message, which Milvus limits to 64 MB
_TEXT = 65535  # bytes of an id or a label, the most that Milvus takes
_KEY = "vsehub"
_INTEGERS = (DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64)
_CANDIDATES = 128  # of a query in the approximate index
_LINKS = {"M": 32, "efConstruction": 200}
# Milvus Lite runs in this process: the client's pings, every 10 seconds, would end the connection in a long call.
_WITHOUT_PINGS = {"grpc.keepalive_time_ms": 2**31 - 1}


@contextmanager
def connect(uri: str, name: str) -> Iterator["Milvus"]:
    """Open the collection. Credentials of a server: token or user:password in its URI, or MILVUS_TOKEN."""
    # Whatever these log as an error is also raised, or harmless.
    for library in ("pymilvus", "milvus_lite", "faiss", "grpc"):
        logging.getLogger(library).setLevel(logging.CRITICAL)
    folder = "://" not in uri
    settings: dict[str, Any] = {"grpc_options": _WITHOUT_PINGS} if folder else {}
    client = MilvusClient(uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=TIMEOUT, **settings)
    try:
        yield Milvus(client, name)
    finally:
        client.close()
        if folder:
            server_manager_instance.release_server(uri)


class Milvus(Database):
    """A Milvus collection."""

    def metadata(self) -> str | None:
        """Return the stored text."""
        if not self.client.has_collection(self.name):
            return None
        text = self.client.describe_collection(self.name).get("properties", {}).get(_KEY, "")
        if text:  # a collection of vsehub's has an index, and must be in memory to be read
            self.client.load_collection(self.name)
        return str(text)

    def store_metadata(self, text: str) -> None:
        """Replace the stored text."""
        self.client.alter_collection_properties(self.name, {_KEY: text})

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection, empty, and remove any earlier one of that name."""
        self.client.drop_collection(self.name)
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=36)
        schema.add_field("id", DataType.VARCHAR, max_length=_TEXT)
        schema.add_field("label", DataType.VARCHAR, max_length=_TEXT, default_value="")
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        index = self._index_params("FLAT", {})
        self.client.create_collection(self.name, schema=schema, index_params=index, properties={_KEY: metadata})

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, labels: Sequence[str] | None = None) -> None:
        """Store items; an item whose id is stored already is updated."""
        rows = [{"key": key_of(name), "id": name, "vector": row} for name, row in zip(ids, vectors, strict=True)]
        if labels is not None:
            for row, label in zip(rows, labels, strict=True):
                row["label"] = label
        for start in range(0, len(rows), _BATCH):
            self.client.upsert(self.name, rows[start : start + _BATCH], partial_update=True)

    def index(self, approximate: bool) -> None:
        """Make all stored items searchable."""
        self.client.flush(self.name)
        if approximate and self.client.describe_index(self.name, "vector")["index_type"] != "HNSW":
            self.client.release_collection(self.name)
            self.client.drop_index(self.name, "vector")
            self.client.create_index(self.name, self._index_params("HNSW", _LINKS))
            self.client.load_collection(self.name)

    def count(self) -> int:
        """Return the number of items; a server's statistics count flushed rows only, and replaced rows twice."""
        rows = self.client.query(self.name, output_fields=["count(*)"], consistency_level="Strong")
        return int(rows[0]["count(*)"])

    def search(self, vectors: np.ndarray, k: int) -> list[Hits]:
        """Return the k best items of each row of vectors."""
        lists = self.client.search(
            self.name,
            vectors,
            limit=k,
            search_params={"params": {"ef": max(_CANDIDATES, k)}},
            output_fields=["id", "label"],
            consistency_level="Session",  # sees this client's own writes, and waits for no others
        )
        return [[(hit["entity"]["id"], hit["entity"]["label"], hit["distance"]) for hit in hits] for hits in lists]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""
        self.client.delete(self.name, ids=[key_of(name) for name in ids])

    def scan(self) -> Iterator[Rows]:
        """Yield all items in batches."""
        self.client.load_collection(self.name)
        columns = ["id", "vector"]
        batches = self.client.query_iterator(self.name, _BATCH, output_fields=columns, consistency_level="Strong")
        while rows := batches.next():
            yield [row["id"] for row in rows], [row["vector"] for row in rows]
        batches.close()

    def _index_params(self, kind: str, settings: dict[str, int]) -> Any:
        index = self.client.prepare_index_params()
        index.add_index("vector", index_type=kind, metric_type="IP", params=settings)
        return index


def note(uri_code: str, name: str, k: int) -> tuple[str, str]:
    """Return the import and the search of a usage note."""
    token = ', token=os.environ.get("MILVUS_TOKEN", "")' if "://" in uri_code or "environ" in uri_code else ""
    return (
        "from pymilvus import MilvusClient\n",
        f"client = MilvusClient({uri_code}{token})\n"
        f'client.load_collection("{name}")\n'
        f'settings = {{"params": {{"ef": {max(_CANDIDATES, k)}}}}}  # of an approximate index: more misses less\n'
        f'only = ""  # all items, or a condition: \'label != ""\', for example\n'
        f'options = {{"search_params": settings, "output_fields": ["id", "label"]}}\n'
        f'lists = client.search("{name}", vectors, only, limit={k}, **options)\n'
        f'ids = [[hit["entity"]["id"] for hit in hits] for hits in lists]\n'
        f'products = np.array([[hit["distance"] for hit in hits] for hits in lists])\n',
    )


def read_biases(database: Milvus, ids: list[str], field: str) -> list[tuple[str, Any, Any]]:
    """Return (id, key, number in the field or None) of each item with one of the ids.

    Raises InputError where an upsert would change keys, or no field can be added.
    """
    description = database.client.describe_collection(database.name)
    require(
        not description.get("auto_id")
        and (description["enable_dynamic_field"] or field in [known["name"] for known in description["fields"]]),
        f"uri: {database.name}: Milvus changes a field of an item only if its key is not automatic (auto_id) and "
        f"the collection has dynamic fields or the field {field}, which add_collection_field adds on a server",
    )
    key = _primary(description)
    wanted = [int(name) for name in ids if name.isdecimal()] if key["type"] in _INTEGERS else ids
    database.client.load_collection(database.name)
    only = f"{key['name']} in {json.dumps(wanted, ensure_ascii=False)}"
    options = {"output_fields": [key["name"], field], "consistency_level": "Strong"}
    rows = database.client.query(database.name, only, **options)
    return [(str(row[key["name"]]), row[key["name"]], row.get(field)) for row in rows]


def put_biases(database: Milvus, biases: dict[Any, float], field: str) -> None:
    """Write {key: number} and change nothing else."""
    key = _primary(database.client.describe_collection(database.name))["name"]
    database.client.upsert(
        database.name, [{key: name, field: bias} for name, bias in biases.items()], partial_update=True
    )


def _primary(description: dict[str, Any]) -> dict[str, Any]:
    return next(field for field in description["fields"] if field.get("is_primary"))


def bias_note(uri_code: str, name: str, k: int, scale: float, field: str, vector: str | None) -> tuple[str, str]:
    """Return the imports and the search of a note that ranks by the stored biases."""
    token = ', token=os.environ.get("MILVUS_TOKEN", "")' if "://" in uri_code or "environ" in uri_code else ""
    return (
        "from pymilvus import MilvusClient\n",
        f"client = MilvusClient({uri_code}{token})\n"
        f'client.load_collection("{name}")\n'
        f'options = {{"output_fields": [{field!r}], "anns_field": "{vector or "vector"}"}}\n'
        f'lists = client.search("{name}", queries, limit={max(RERANKED, 4 * k)}, **options)\n'
        f'rows = [[(hit["id"], hit["distance"], hit["entity"].get("{field}")) for hit in hits] for hits in lists]\n'
        f"{ranking_code(scale, k)}",
    )
