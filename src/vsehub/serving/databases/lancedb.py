"""LanceDB: a folder, an object store (s3://, gs://, az://) or LanceDB Cloud (db://)."""

import os
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from vsehub.serving.databases.base import (
    CONNECT_SECONDS,
    FilterExample,
    ItemRows,
    Named,
    Shape,
    folder_size,
    own_folder,
    read_items,
)
from vsehub.serving.databases.columns import require_kind

BATCH = 10_000
PROBES = 20  # lists that a query searches in the approximate index
_KEY = "vsehub"  # of the facts, among the metadata of the column of vectors: they change with the table, at once


class LanceDB(Named):
    """A table of LanceDB. Credentials: LANCEDB_API_KEY for db://, those of the object store in its own variables."""

    def __init__(self, uri: str, name: str, embedded: bool):
        import lancedb

        self._folder = Path(uri) if embedded else None
        if self._folder is not None:
            own_folder(self._folder, "LanceDB", ("*.lance",))
        settings: dict[str, Any] = {}
        if uri.startswith("db://"):
            patience = {"connect_timeout": timedelta(seconds=CONNECT_SECONDS)}
            settings = {"api_key": os.environ.get("LANCEDB_API_KEY"), "client_config": {"timeout_config": patience}}
        self._base = lancedb.connect(uri, **settings)
        self._name = name

    def shape(self) -> Shape | None:
        """See `Database`."""
        if not _has(self._base, self._name):
            return None
        import pyarrow as pa

        table = self._table()
        kind = table.schema.field("vector").type if "vector" in table.schema.names else pa.null()
        size = kind.list_size if pa.types.is_fixed_size_list(kind) else 0
        statistics = [table.index_stats(index.name) for index in table.list_indices()]
        return Shape(size, all(one is None or one.distance_type in (None, "dot") for one in statistics))

    def facts(self) -> str | None:
        """See `Database`."""
        schema = self._table().schema
        told = (schema.field("vector").metadata or {}) if "vector" in schema.names else {}
        found = told.get(_KEY.encode())
        return None if found is None else str(found, "utf-8", "replace")

    def create(self, dimensions: int, facts: str) -> None:
        """See `Database`."""
        import pyarrow as pa

        vector = pa.field("vector", pa.list_(pa.float32(), dimensions), metadata={_KEY: facts})
        self._base.create_table(
            self._name, schema=pa.schema([pa.field("id", pa.string()), pa.field("label", pa.string()), vector])
        )

    def keep_facts(self, facts: str) -> None:
        """See `Database`."""
        self._table().update_field_metadata({"path": "vector", "metadata": {_KEY: facts}})

    def put(self, rows: ItemRows) -> None:
        """See `Database`; columns that are not given keep their values."""
        import pyarrow as pa

        table = self._table()
        schema = table.schema
        given = {"id": pa.array(rows.ids, pa.string())}
        if rows.labels is not None:
            given["label"] = pa.array(rows.labels, pa.string())
        given["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(rows.vectors.ravel()), rows.vectors.shape[1])
        if rows.fields is not None:
            missing = [field for field in rows.fields.schema if field.name not in schema.names]
            for field in rows.fields.schema:
                if field.name in schema.names:
                    require_kind(field.name, str(field.type), str(schema.field(field.name).type))
            if missing:
                table.add_columns(missing)
                schema = table.schema
            given |= {name: rows.fields.column(name).combine_chunks() for name in rows.fields.column_names}
        names = [name for name in schema.names if name in given]
        filled = [one.name for one in schema if one.name not in given and not one.nullable]  # the interface demands it
        if filled:
            table.alter_columns(*({"path": name, "nullable": True} for name in filled))
        new = pa.table([given[name] for name in names], schema=pa.schema([schema.field(name) for name in names]))
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(new)

    def update(self, rows: ItemRows) -> None:
        """See `Database`."""
        self.put(rows)

    def finish(self, approximate: bool) -> None:
        """See `Database`."""
        from lancedb.index import IvfFlat

        table = self._table()
        if approximate and not table.list_indices():
            table.create_index("vector", config=IvfFlat(distance_type="dot"))
        else:
            table.optimize()

    def count(self) -> int:
        """See `Database`."""
        return int(self._table().count_rows())

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        search = self._table().search(vectors, vector_column_name="vector").distance_type("dot").nprobes(PROBES)
        hits = search.limit(k).select(["id", "_distance"]).to_arrow()
        query = hits["query_index"].to_pylist() if "query_index" in hits.column_names else [0] * len(hits)
        found: list[list[tuple[str, float]]] = [[] for _ in vectors]
        for row, one, distance in zip(query, hits["id"].to_pylist(), hits["_distance"].to_pylist(), strict=True):
            found[row].append((one, 1.0 - distance))
        return found

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        for start in range(0, len(ids), BATCH):
            self._table().delete(_among(ids[start : start + BATCH]))

    def read(self, ids: Sequence[str] | None = None) -> Iterator[ItemRows]:
        """See `Database`."""
        if ids is None:
            total = self.count()
            for start in range(0, total, BATCH):
                yield _rows(self._name, self._rows().offset(start).limit(BATCH).to_arrow())
            return
        for start in range(0, len(ids), BATCH):
            yield _rows(self._name, self._rows().where(_among(ids[start : start + BATCH])).limit(BATCH).to_arrow())

    def drop(self) -> None:
        """See `Database`."""
        self._base.drop_table(self._name)

    def size(self) -> int | None:
        """See `Database`."""
        return None if self._folder is None else folder_size(self._folder)

    def close(self) -> None:
        """See `Database`; there is no connection to end."""

    def _rows(self) -> Any:
        return self._table().search().select(["id", "label", "vector"])

    def _table(self) -> Any:
        return self._base.open_table(self._name)


def _has(base: Any, name: str) -> bool:
    """Whether a database has a table."""
    token = None
    while True:
        page = base.list_tables(page_token=token)
        if name in page.tables:
            return True
        token = page.page_token
        if not token:
            return False


def _among(ids: Sequence[str]) -> str:
    """The SQL condition that an id is one of these; quotes within them are doubled."""
    return f"id IN ({', '.join(chr(39) + one.replace(chr(39), chr(39) * 2) + chr(39) for one in ids)})"


def _rows(name: str, found: Any) -> ItemRows:
    vectors = found["vector"].combine_chunks()
    matrix = vectors.flatten().to_numpy(zero_copy_only=False).reshape(len(found), vectors.type.list_size)
    return read_items(name, found["id"].to_pylist(), matrix, [one or "" for one in found["label"].to_pylist()])


def note(uri: str, name: str, k: int, example: FilterExample) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    key = ', api_key=os.environ["LANCEDB_API_KEY"]' if uri.startswith("db://") else ""
    folder = "://" not in uri
    imports = ["from datetime import timedelta", *(["from pathlib import Path"] if folder else [])]
    address = f"Path({uri!r}).resolve(strict=True)" if folder else repr(uri)
    return (
        "\n".join([*(["import os"] if key else []), *imports]) + "\n\nimport lancedb\nimport numpy as np\n",
        f"fresh = timedelta(0)  # every search looks for additions; without it, those made later are not seen\n"
        f"base = lancedb.connect({address}{key}, read_consistency_interval=fresh)\n"
        f'table = base.open_table("{name}")\n'
        f"only = None  # the items that are searched: {example.text('`')!r}, for example; None for all\n"
        f'asked = [table.search(one).distance_type("dot").nprobes({PROBES}).limit({k}) for one in vectors]\n'
        f"found = [(one.where(only, prefilter=True) if only else one).to_list() for one in asked]\n"
        f'ids = [[hit["id"] for hit in hits] for hits in found]\n'
        f'products = np.array([[1 - hit["_distance"] for hit in hits] for hits in found])\n',
    )
