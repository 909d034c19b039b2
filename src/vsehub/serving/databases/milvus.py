"""Milvus: Milvus Lite in a folder whose name ends in .db, or a server by its URI."""

import logging
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.checks import fail, require
from vsehub.serving.databases.base import (
    CONNECT_SECONDS,
    Aliased,
    FilterExample,
    ItemRows,
    Shape,
    folder_size,
    key_of,
    own_folder,
)
from vsehub.serving.databases.foreign import FIELD, SHORTLIST, Foreign

BATCH = 1000  # items or queries in one message, which Milvus limits to 64 MB
_TEXT = 65535  # bytes of an id or a label, the most that Milvus takes
_KEY = "vsehub"
_EXACT: dict[str, Any] = {"index_type": "FLAT", "params": {}}
_APPROXIMATE: dict[str, Any] = {"index_type": "HNSW", "params": {"M": 32, "efConstruction": 200}}
# Milvus Lite runs in this process: the client's pings, every 10 seconds, would end the connection in a long call.
_UNHURRIED = {"grpc.keepalive_time_ms": 2**31 - 1}
EF = 128  # candidates of a query in the approximate index


class Milvus(Aliased):
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
        self._alias = name
        aliased = self._client.has_collection(name) and name not in self._client.list_collections()
        self._name = self._client.describe_alias(name)["collection_name"] if aliased else name
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
                yield _rows(self._client.get(self._name, keys, output_fields=wanted, consistency_level="Strong"))
            return
        self.count()  # waits for all changes; servers before 2.4 do not wait for recent ones when batches are read
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
        MilvusLite(str(folder)).close()  # the server only logs the reason; this call raises it
    except DataDirLockedError:
        fail(f"index_uri: {folder} is open in another process; end that one first")


def _rows(found: Sequence[dict[str, Any]]) -> ItemRows:
    vectors = np.array([one["vector"] for one in found], np.float32)
    return ItemRows([one["id"] for one in found], vectors, [one["label"] for one in found])


class MilvusField(Foreign):
    """A dynamic field of a collection of Milvus, which merges it into the stored items from version 2.6.2 on."""

    def __init__(self, *given: Any):
        super().__init__(*given)
        require(
            self.place.served or Path(self.place.uri).is_dir(), f"correct: there is no collection {self.place.address}"
        )
        self._database = Milvus(self.uri, self.place.name, not self.place.served)
        self._client = self._database._client
        self._numbered = False

    def check(self) -> bool:
        """See `Foreign`."""
        from pymilvus import DataType

        name, where = self.place.name, self.place.address
        require(self._client.has_collection(name), f"correct: there is no collection {where}")
        version = str(self._client.get_server_version()) if self.place.served else "2.6.2"
        require(
            merges(version),
            f"correct: Milvus {version} at {where} writes whole items only, vectors included; version 2.6.2 or newer "
            f"can add a field. Or fill a collection of vsehub's own with index=milvus index_name=NAME",
        )
        told = self._client.describe_collection(name)
        fields = {one["name"]: one for one in told["fields"]}
        key = next(one for one in fields.values() if one.get("is_primary"))
        require(key["name"] == self.id_column, f"correct_id: the key of {where} is {key['name']}; give correct_id=NAME")
        self._numbered = key["type"] == DataType.INT64
        own = fields.get(str(self.vector_column), {}).get("type")
        vectors = [one["name"] for one in fields.values() if one["type"] == DataType.FLOAT_VECTOR]
        require(
            own == DataType.FLOAT_VECTOR,
            f"correct_vector: {where} has no field {self.vector_column} of vectors in float32; it has "
            f"{', '.join(vectors) or 'none'}",
        )
        for index in self._client.list_indexes(name, field_name=self.vector_column):
            metric = self._client.describe_index(name, index)["metric_type"]
            require(
                metric in ("IP", "COSINE"),
                f"correct: {where} is searched by {metric}; the correction is of inner products or cosines",
            )
        require(
            not told.get("auto_id") and (FIELD in fields or told["enable_dynamic_field"]),
            f"correct: {where} takes no further field of an item: "
            f"{'the server makes its keys' if told.get('auto_id') else 'its dynamic field is not enabled'}",
        )
        self._client.load_collection(name)
        there = self._client.query(name, f"exists {FIELD}", limit=1, consistency_level="Strong")
        return FIELD in fields or len(there) > 0

    def among(self, ids: Sequence[str]) -> set[str]:
        """See `Foreign`; every item of Milvus has its vectors."""
        keys = [key for key in map(self._key, ids) if key is not None]
        asked = {"output_fields": [self.id_column], "consistency_level": "Strong"}
        found = self._client.get(self.place.name, keys, **asked) if keys else []
        return {str(one[self.id_column]) for one in found}

    def write(self, bias: Sequence[float]) -> None:
        """See `Foreign`."""
        for ids, values in self.batches(bias):
            rows = [{self.id_column: self._key(one), FIELD: value} for one, value in zip(ids, values, strict=True)]
            self._client.upsert(self.place.name, rows, partial_update=True)

    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """See `Foreign`."""
        count = max(k, SHORTLIST) if corrected else k
        (hits,) = self._client.search(
            self.place.name,
            query[None],
            f"exists {FIELD}",
            limit=count,
            output_fields=[FIELD] if corrected else [],
            search_params={"params": {"ef": max(EF, count)}},
            anns_field=self.vector_column,
            consistency_level="Session",
        )
        scores = np.array([hit["distance"] for hit in hits], np.float64)
        if corrected:
            scores = self.scale * scores - np.array([hit["entity"][FIELD] for hit in hits], np.float64)
        order = np.argsort(-scores, kind="stable")[:k]
        return [(str(hits[int(row)][self.id_column]), float(scores[row])) for row in order]

    def note(self, k: int) -> tuple[str, str]:
        """See `Foreign`."""
        name, count = self.place.name, max(k, SHORTLIST)
        imports, opened = _connected(str(self.place.uri if self.place.served else Path(self.place.uri).absolute()))
        return (
            imports,
            f"{opened}"
            f'client.load_collection("{name}")\n'
            f'effort = {{"params": {{"ef": {max(EF, count)}}}}}  # of an approximate index\n'
            f'only = "exists {FIELD}"  # further conditions on your fields follow " and "\n'
            f'told = {{"search_params": effort, "output_fields": ["{FIELD}"], "anns_field": "{self.vector_column}"}}\n'
            f'shortlists = client.search("{name}", vectors, only, limit={count}, **told)\n'
            f"ids = []\n"
            f"for hits in shortlists:\n"
            f'    scores = np.array([{self.scale!r} * hit["distance"] - hit["entity"]["{FIELD}"] for hit in hits])\n'
            f'    ids.append([str(hits[int(row)]["{self.id_column}"]) for row in np.argsort(-scores)[:{k}]])\n',
        )

    def close(self) -> None:
        """See `Foreign`."""
        self._database.close()

    def _key(self, one: str) -> int | str | None:
        """An id as the key of the collection; None for what cannot be one."""
        if not self._numbered:
            return one
        return int(one) if one.isascii() and one.isdecimal() and len(one) < 19 else None


def merges(version: str) -> bool:
    """Whether a server of this version changes one field of an item and leaves the others as they are."""
    return tuple(map(int, re.findall(r"\d+", version)[:3])) >= (2, 6, 2)


def _connected(uri: str) -> tuple[str, str]:
    """The imports of a note, and its line that opens `uri`."""
    folder = uri.endswith(".db")
    token = "" if folder else ', token=os.environ.get("MILVUS_TOKEN", "")'
    address = f"str(Path({uri!r}).resolve(strict=True))" if folder else repr(uri)
    return (
        f"{'from pathlib import Path' if folder else 'import os'}\n\n"
        "import numpy as np\nfrom pymilvus import MilvusClient\n",
        f"client = MilvusClient({address}{token})\n",
    )


def note(uri: str, name: str, k: int, example: FilterExample) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    imports, opened = _connected(uri)
    return (
        imports,
        f"{opened}"
        f'client.load_collection("{name}")\n'
        f'effort = {{"params": {{"ef": {max(EF, k)}}}}}  # of an approximate index: more is slower and misses less\n'
        f'only = ""  # the items that are searched: {example.text(equal="==")!r}, for example; "" for all\n'
        f'told = {{"search_params": effort, "output_fields": ["id", "label"]}}\n'
        f'found = client.search("{name}", vectors, only, limit={k}, **told)\n'
        f'ids = [[hit["entity"]["id"] for hit in hits] for hits in found]\n'
        f'products = np.array([[hit["distance"] for hit in hits] for hits in found])\n',
    )
