"""LanceDB: a folder, an object store (s3://, gs://, az://) or LanceDB Cloud (db://)."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import lancedb
import numpy as np
import pyarrow as pa
from lancedb.index import IvfFlat

from vsehub.serving.databases.engines import RERANKED, Database, Hits, Rows, ranking_code

_BATCH = 10_000
_KEY = "vsehub"  # of the text in the metadata of the column of vectors, which is stored atomically with the table
_PROBES = 20  # lists that a query searches in the approximate index


@contextmanager
def connect(uri: str, name: str) -> Iterator["LanceDB"]:
    """Open the collection. Credentials: LANCEDB_API_KEY for db://, those of the object store in its own variables."""
    yield LanceDB(lancedb.connect(uri), name)


class LanceDB(Database):
    """A LanceDB table."""

    @property
    def table(self) -> Any:
        """The table as it is now."""
        return self.client.open_table(self.name)

    def metadata(self) -> str | None:
        """Return the stored text."""
        try:
            table = self.table
        except (ValueError, RuntimeError) as error:
            if "not found" not in str(error):
                raise
            return None
        stored = table.schema.field("vector").metadata if "vector" in table.schema.names else None
        return str((stored or {}).get(_KEY.encode(), b""), "utf-8", "replace")

    def store_metadata(self, text: str) -> None:
        """Replace the stored text."""
        self.table.update_field_metadata({"path": "vector", "metadata": {_KEY: text}})

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection, empty, and remove any earlier one of that name."""
        vector = pa.field("vector", pa.list_(pa.float32(), dimensions), metadata={_KEY: metadata})
        schema = pa.schema([pa.field("id", pa.string()), pa.field("label", pa.string()), vector])
        self.client.drop_table(self.name, ignore_missing=True)
        self.client.create_table(self.name, schema=schema)

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, labels: Sequence[str] | None = None) -> None:
        """Store items; an item whose id is stored already is updated."""
        table = self.table
        # New rows have nulls in the columns that other programs added, so these must allow nulls.
        strict = [{"path": column.name, "nullable": True} for column in table.schema if not column.nullable]
        if strict:
            table.alter_columns(*strict)
        rows = {"id": ids, "vector": pa.FixedSizeListArray.from_arrays(vectors.ravel(), vectors.shape[1])}
        rows |= {} if labels is None else {"label": labels}
        table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(pa.table(rows))

    def index(self, approximate: bool) -> None:
        """Make all stored items searchable."""
        table = self.table
        if approximate and not table.list_indices():
            table.create_index("vector", config=IvfFlat(distance_type="dot"))
        table.optimize()

    def count(self) -> int:
        """Return the number of items."""
        return int(self.table.count_rows())

    def search(self, vectors: np.ndarray, k: int) -> list[Hits]:
        """Return the k best items of each row of vectors."""
        search = self.table.search(vectors, vector_column_name="vector").distance_type("dot").nprobes(_PROBES)
        lists: list[Hits] = [[] for _ in vectors]
        for hit in search.limit(k).select(["id", "label", "_distance"]).to_list():
            lists[hit.get("query_index", 0)].append((hit["id"], hit["label"], 1.0 - hit["_distance"]))
        return lists

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""
        self.table.delete(_among("id", ids))

    def scan(self) -> Iterator[Rows]:
        """Yield all items in batches."""
        for batch in self.table.search().select(["id", "vector"]).to_batches(_BATCH):
            vectors = batch["vector"].flatten().to_numpy(zero_copy_only=False).reshape(len(batch), -1)
            yield batch["id"].to_pylist(), vectors


def note(uri_code: str, name: str, k: int) -> tuple[str, str]:
    """Return the import and the search of a usage note."""
    return (
        "import lancedb\nfrom datetime import timedelta\n",
        f"fresh = timedelta(0)  # every search looks for additions; without it, those made later are not seen\n"
        f"base = lancedb.connect({uri_code}, read_consistency_interval=fresh)\n"
        f'table = base.open_table("{name}")\n'
        f"only = None  # all items, or a condition: \"label <> ''\", for example\n"
        f'searches = [table.search(row).distance_type("dot").nprobes({_PROBES}).limit({k}) for row in vectors]\n'
        f"lists = [(search.where(only, prefilter=True) if only else search).to_list() for search in searches]\n"
        f'ids = [[hit["id"] for hit in hits] for hits in lists]\n'
        f'products = np.array([[1 - hit["_distance"] for hit in hits] for hits in lists])\n',
    )


def read_biases(database: LanceDB, ids: list[str], field: str) -> list[tuple[str, Any, Any]]:
    """Return (id, key, number in the field or None) of each item with one of the ids."""
    table = database.table
    names = ["id", *({field} & set(table.schema.names))]
    rows = table.search().where(_among("CAST(id AS STRING)", ids)).select(names).to_list()
    return [(str(row["id"]), row["id"], row.get(field)) for row in rows]


def put_biases(database: LanceDB, biases: dict[Any, float], field: str) -> None:
    """Write {key: number} and change nothing else."""
    if field not in database.table.schema.names:
        database.table.add_columns([pa.field(field, pa.float64())])
    table, columns = database.table, {"id": list(biases), field: list(biases.values())}
    rows = pa.table({name: pa.array(cells, table.schema.field(name).type) for name, cells in columns.items()})
    table.merge_insert("id").when_matched_update_all().execute(rows)


def bias_note(uri_code: str, name: str, k: int, scale: float, field: str, vector: str | None) -> tuple[str, str]:
    """Return the imports and the search of a note that ranks by the stored biases."""
    return (
        "import lancedb\n",
        f'table = lancedb.connect({uri_code}).open_table("{name}")\n'
        f'searches = [table.search(row, vector_column_name="{vector or "vector"}") for row in queries]\n'
        f"only = '`{field}` IS NOT NULL'\n"
        f'searches = [search.distance_type("dot").where(only, prefilter=True) for search in searches]\n'
        f"lists = [search.limit({max(RERANKED, 4 * k)}).to_list() for search in searches]\n"
        f'rows = [[(hit["id"], 1 - hit["_distance"], hit["{field}"]) for hit in hits] for hits in lists]\n'
        f"{ranking_code(scale, k)}",
    )


def _among(column: str, ids: Sequence[str]) -> str:
    return f"{column} IN ('" + "', '".join(name.replace("'", "''") for name in ids) + "')"
