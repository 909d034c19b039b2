"""Milvus: Milvus Lite in a folder whose name ends in .db, or a server by its URI."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail
from vsehub.serving.databases.base import (
    CONNECT_SECONDS,
    FilterExample,
    ItemRows,
    Named,
    Shape,
    folder_size,
    key_of,
    own_folder,
    read_items,
)

BATCH = 1000  # items or queries in one message, which Milvus limits to 64 MB
_TEXT = 65535  # bytes of an id or a label, the most that Milvus takes
_KEY = "vsehub"
_EXACT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
_APPROXIMATE: dict[str, Any] = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
# Milvus Lite runs in this process: the client's pings, every 10 seconds, would end the connection in a long call.
_UNHURRIED = {"grpc.keepalive_time_ms": 2**31 - 1}
EF = 128  # candidates of a query in the approximate index


class Milvus(Named):
    """A collection of Milvus. The token or user:password of a server: in its URI, or MILVUS_TOKEN."""

    def __init__(self, uri: str, name: str, embedded: bool):
        from pymilvus import MilvusClient

        # Whatever these log as an error is also raised, or is no error.
        for library in ("pymilvus", "milvus_lite", "faiss", "grpc"):
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._folder = Path(uri) if embedded else None
        if self._folder is not None:
            own_folder(self._folder, "Milvus Lite", ("collections", "LOCK"))
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            _require_starts(self._folder)
        settings: dict[str, Any] = {} if self._folder is None else {"grpc_options": _UNHURRIED}
        self._client = MilvusClient(uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=CONNECT_SECONDS, **settings)
        self._name = name
        self._loaded = ""  # the name of the collection that `search` has loaded

    def shape(self) -> Shape | None:
        """See `Database`."""
        if not self._client.has_collection(self._name):
            return None
        found = {one["name"]: one for one in self._described()["fields"]}.get("vector", {})
        metric = "IP"  # a collection without an index yet
        for index in self._client.list_indexes(self._name):
            metric = self._client.describe_index(self._name, index).get("metric_type", metric)
        return Shape(int(found.get("params", {}).get("dim", 0)), metric == "IP")

    def facts(self) -> str | None:
        """See `Database`."""
        return self._described().get("properties", {}).get(_KEY)

    def create(self, dimensions: int, facts: str) -> None:
        """See `Database`."""
        from pymilvus import DataType

        schema = self._client.create_schema(auto_id=False, enable_dynamic_field=True)
        schema.add_field("key", DataType.VARCHAR, is_primary=True, max_length=36)
        schema.add_field("id", DataType.VARCHAR, max_length=_TEXT)
        schema.add_field("label", DataType.VARCHAR, max_length=_TEXT)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=dimensions)
        self._client.create_collection(self._name, schema=schema, properties={_KEY: facts})

    def keep_facts(self, facts: str) -> None:
        """See `Database`."""
        self._client.alter_collection_properties(self._name, {_KEY: facts})

    def put(self, rows: ItemRows) -> None:
        """See `Database`."""
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            self._put(rows, part, [{} for _ in rows.ids[part]])

    def update(self, rows: ItemRows) -> None:
        """See `Database`; Milvus replaces whole records, so that earlier ones are read."""
        self._client.load_collection(self._name)
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            keys = [key_of(one) for one in rows.ids[part]]
            found = self._client.get(self._name, keys, output_fields=["*"], consistency_level="Strong")
            earlier = {one["id"]: dict(one) for one in found}
            self._put(rows, part, [earlier.get(one, {}) for one in rows.ids[part]])

    def _put(self, rows: ItemRows, part: slice, earlier: Sequence[dict[str, Any]]) -> None:
        """Store some rows. Missing parts come from earlier records; empty cells are left out."""
        given = zip(rows.ids[part], rows.vectors[part], earlier, rows.records(part), strict=True)
        self._client.upsert(
            self._name,
            [
                {name: value for name, value in ({"label": ""} | before | record).items() if value is not None}
                | {"key": key_of(one), "id": one, "vector": vector}
                for one, vector, before, record in given
            ],
        )

    def finish(self, approximate: bool) -> None:
        """See `Database`."""
        self._client.flush(self._name)
        self._index(_APPROXIMATE if approximate else _EXACT)

    def count(self) -> int:
        """See `Database`; the statistics of a server count flushed rows only, and replaced ones twice."""
        if not self._client.list_indexes(self._name):  # loading, and so counting, needs an index
            self._index(_EXACT)
        self._client.load_collection(self._name)
        found = self._client.query(self._name, output_fields=["count(*)"], consistency_level="Strong")
        return int(found[0]["count(*)"])

    def _index(self, wanted: dict[str, Any]) -> None:
        """Give the vectors this index only, and load them."""
        from pymilvus import MilvusException

        for earlier in self._client.list_indexes(self._name):
            if self._client.describe_index(self._name, earlier)["index_type"] != wanted["index_type"]:
                self._client.release_collection(self._name)
                self._client.drop_index(self._name, earlier)
        if not self._client.list_indexes(self._name):
            index = self._client.prepare_index_params()
            index.add_index("vector", metric_type="IP", **wanted)
            try:
                self._client.create_index(self._name, index)
            except MilvusException:
                # The client repeats a call whose answer was lost, and finds the index of the first call.
                if not self._client.list_indexes(self._name):
                    raise
        self._client.load_collection(self._name)

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        if self._loaded != self._name:  # a collection that was just opened may not be in memory yet
            self._client.load_collection(self._name)
            self._loaded = self._name
        found: list[list[tuple[str, float]]] = []
        for start in range(0, len(vectors), BATCH):
            part = self._client.search(
                self._name,
                vectors[start : start + BATCH],
                limit=k,
                search_params={"metric_type": "IP", "params": {"ef": max(EF, k)}},
                output_fields=["id"],
                consistency_level="Session",  # sees this client's own writes, and waits for no others
            )
            found += [[(hit["entity"]["id"], hit["distance"]) for hit in hits] for hits in part]
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        for start in range(0, len(ids), BATCH):
            self._client.delete(self._name, ids=[key_of(one) for one in ids[start : start + BATCH]])

    def read(self, ids: Sequence[str] | None = None) -> Iterator[ItemRows]:
        """See `Database`."""
        self._client.load_collection(self._name)
        wanted = ["id", "label", "vector"]
        if ids is not None:
            for start in range(0, len(ids), BATCH):
                keys = [key_of(one) for one in ids[start : start + BATCH]]
                yield _rows(
                    self._name, self._client.get(self._name, keys, output_fields=wanted, consistency_level="Strong")
                )
            return
        self.count()  # waits for all changes; servers before 2.4 do not wait for recent ones when batches are read
        batches = self._client.query_iterator(self._name, BATCH, output_fields=wanted, consistency_level="Strong")
        while found := batches.next():
            yield _rows(self._name, found)
        batches.close()

    def size(self) -> int | None:
        """See `Database`."""
        return None if self._folder is None else folder_size(self._folder)

    def close(self) -> None:
        """See `Database`; Milvus Lite's server ends too."""
        self._client.close()
        if self._folder is not None:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(str(self._folder))

    def drop(self) -> None:
        """See `Database`."""
        self._client.drop_collection(self._name)

    def _described(self) -> dict[str, Any]:
        return dict(self._client.describe_collection(self._name))


def _require_starts(folder: Path) -> None:
    """Start Milvus Lite in this process. Raises InputError if another process has opened the folder."""
    from milvus_lite.db import MilvusLite
    from milvus_lite.exceptions import DataDirLockedError
    from milvus_lite.server_manager import server_manager_instance

    if server_manager_instance.start_and_get_uri(str(folder)) is not None:
        return
    try:
        MilvusLite(str(folder)).close()  # the server only logs the reason; this call raises it
    except DataDirLockedError:
        fail(f"index_uri: {folder} is open in another process; end that one first")


def _rows(name: str, found: Sequence[dict[str, Any]]) -> ItemRows:
    ids, vectors, labels = ([one[part] for one in found] for part in ("id", "vector", "label"))
    return read_items(name, ids, vectors, labels)


def note(uri: str, name: str, k: int, example: FilterExample) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    folder = uri.endswith(".db")
    token = "" if folder else ', token=os.environ.get("MILVUS_TOKEN", "")'
    address = f"str(Path({uri!r}).resolve(strict=True))" if folder else repr(uri)
    return (
        f"{'from pathlib import Path' if folder else 'import os'}\n\n"
        "import numpy as np\nfrom pymilvus import MilvusClient\n",
        f"client = MilvusClient({address}{token})\n"
        f'client.load_collection("{name}")\n'
        f'effort = {{"params": {{"ef": {max(EF, k)}}}}}  # of an approximate index: more is slower and misses less\n'
        f'only = ""  # the items that are searched: {example.text(equal="==")!r}, for example; "" for all\n'
        f'told = {{"search_params": effort, "output_fields": ["id", "label"]}}\n'
        f'found = client.search("{name}", vectors, only, limit={k}, **told)\n'
        f'ids = [[hit["entity"]["id"] for hit in hits] for hits in found]\n'
        f'products = np.array([[hit["distance"] for hit in hits] for hits in found])\n',
    )
