"""Milvus: Milvus Lite in a folder whose name ends in .db, or a server by its URI."""

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail
from vsehub.serving.databases.base import CONNECT_SECONDS, Aliased, Rows, Shape, folder_size, key_of, own_folder

BATCH = 1000  # items or queries in one message, which Milvus limits to 64 MB
_TEXT = 65535  # bytes of an id or a label, the most that Milvus takes
_KEY = "vsehub"
_EXACT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
_APPROXIMATE: dict[str, Any] = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
# Milvus Lite answers in this process: the client's pings, every 10 seconds, would end the connection in a long call.
_UNHURRIED = {"grpc.keepalive_time_ms": 2**31 - 1}
EF = 128  # candidates of a query in the approximate index


class Milvus(Aliased):
    """A collection of Milvus. The token or user:password of a server: in its URI, or MILVUS_TOKEN."""

    def __init__(self, uri: str, name: str, embedded: bool):
        from pymilvus import MilvusClient

        # What these log as an error is raised too, or no error.
        for library in ("pymilvus", "milvus_lite", "faiss", "grpc"):
            logging.getLogger(library).setLevel(logging.CRITICAL)
        self._folder = Path(uri) if embedded else None
        if self._folder is not None:
            own_folder(self._folder, "Milvus Lite", ("collections", "LOCK"))
            self._folder.parent.mkdir(parents=True, exist_ok=True)
            _require_starts(self._folder)
        settings: dict[str, Any] = {} if self._folder is None else {"grpc_options": _UNHURRIED}
        self._client = MilvusClient(uri, token=os.environ.get("MILVUS_TOKEN", ""), timeout=CONNECT_SECONDS, **settings)
        self._alias = name
        aliased = self._client.has_collection(name) and not self._is_collection(name)
        self._name = self._client.describe_alias(name)["collection_name"] if aliased else name

    def shape(self) -> Shape | None:
        """See `Database`."""
        if not self._client.has_collection(self._name):
            return None
        found = {one["name"]: one for one in self._described()["fields"]}.get("vector", {})
        metric = "IP"  # that of a collection without an index yet
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

    def put(self, rows: Rows) -> None:
        """See `Database`."""
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            self._put(rows, part, [{} for _ in rows.ids[part]])

    def update(self, rows: Rows) -> None:
        """See `Database`; Milvus replaces whole records, so that earlier ones are read."""
        self._client.load_collection(self._name)
        for start in range(0, len(rows.ids), BATCH):
            part = slice(start, start + BATCH)
            keys = [key_of(one) for one in rows.ids[part]]
            found = self._client.get(self._name, keys, output_fields=["*"], consistency_level="Strong")
            earlier = {one["id"]: dict(one) for one in found}
            self._put(rows, part, [earlier.get(one, {}) for one in rows.ids[part]])

    def _put(self, rows: Rows, part: slice, earlier: Sequence[dict[str, Any]]) -> None:
        """Put in some rows, with what is not given from earlier records of theirs; empty cells are left out."""
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
        from pymilvus import MilvusException

        self._client.flush(self._name)
        if not self._client.list_indexes(self._name):
            index = self._client.prepare_index_params()
            index.add_index("vector", metric_type="IP", **(_APPROXIMATE if approximate else _EXACT))
            try:
                self._client.create_index(self._name, index)
            except MilvusException:
                # A call whose answer was lost is repeated by the client, which then finds the index of the first.
                if not self._client.list_indexes(self._name):
                    raise
        self._client.load_collection(self._name)

    def count(self) -> int:
        """See `Database`."""
        if not self._client.list_indexes(self._name):  # nothing can be loaded, and counted, without an index
            return int(self._client.get_collection_stats(self._name)["row_count"])
        self._client.load_collection(self._name)
        found = self._client.query(self._name, output_fields=["count(*)"], consistency_level="Strong")
        return int(found[0]["count(*)"])

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        found: list[list[tuple[str, float]]] = []
        for start in range(0, len(vectors), BATCH):
            part = self._client.search(
                self._name,
                vectors[start : start + BATCH],
                limit=k,
                search_params={"metric_type": "IP", "params": {"ef": max(EF, k)}},
                output_fields=["id"],
                consistency_level="Session",  # sees what this client wrote, and waits for nothing else
            )
            found += [[(hit["entity"]["id"], hit["distance"]) for hit in hits] for hits in part]
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        for start in range(0, len(ids), BATCH):
            self._client.delete(self._name, ids=[key_of(one) for one in ids[start : start + BATCH]])

    def read(self, ids: Sequence[str] | None = None) -> Iterator[Rows]:
        """See `Database`."""
        self._client.load_collection(self._name)
        wanted = ["id", "label", "vector"]
        if ids is not None:
            for start in range(0, len(ids), BATCH):
                keys = [key_of(one) for one in ids[start : start + BATCH]]
                yield _rows(self._client.get(self._name, keys, output_fields=wanted, consistency_level="Strong"))
            return
        self.count()  # sees all changes; batches of servers before 2.4 do not wait for those of a moment ago
        batches = self._client.query_iterator(self._name, BATCH, output_fields=wanted, consistency_level="Strong")
        while found := batches.next():
            yield _rows(found)
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

    def _is_collection(self, name: str) -> bool:
        return name in self._client.list_collections()

    def _point(self, name: str) -> None:
        alter = self._client.alter_alias if self._client.has_collection(self._alias) else self._client.create_alias
        alter(name, self._alias)

    def _unpoint(self) -> None:
        self._client.drop_alias(self._alias)

    def _drop(self) -> None:
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
        MilvusLite(str(folder)).close()  # the server only logs why it did not start; this fails for the same reason
    except DataDirLockedError:
        fail(f"index_uri: {folder} is open in another process; end that one first")


def _rows(found: Sequence[dict[str, Any]]) -> Rows:
    vectors = np.array([one["vector"] for one in found], np.float32)
    return Rows([one["id"] for one in found], vectors, [one["label"] for one in found])


def note(uri: str, name: str, k: int) -> tuple[str, str]:
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
        f'only = ""  # the items that are searched: \'price < 10\', for example; "" for all\n'
        f'told = {{"search_params": effort, "output_fields": ["id", "label"]}}\n'
        f'found = client.search("{name}", vectors, only, limit={k}, **told)\n'
        f'ids = [[hit["entity"]["id"] for hit in hits] for hits in found]\n'
        f'products = np.array([[hit["distance"] for hit in hits] for hits in found])\n',
    )
