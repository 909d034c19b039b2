"""Postgres with the extension pgvector, by a URI postgresql://user@host/database."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import psycopg
from pgvector import Vector
from pgvector.psycopg import register_vector
from psycopg.sql import SQL, Composable, Identifier, Literal

from vsehub.serving.databases.engines import RERANKED, TIMEOUT, Database, Hits, Rows

_BATCH = 5000
_CANDIDATES = 128  # of a query in the approximate index, k if that is larger


@contextmanager
def connect(uri: str, name: str) -> Iterator["PGVector"]:
    """Open the collection. Passwords: PGPASSWORD, ~/.pgpass, or any other method of libpq."""
    with psycopg.connect(uri, autocommit=True, connect_timeout=TIMEOUT) as base:
        base.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(base)
        yield PGVector(base, name)


class PGVector(Database):
    """A Postgres table."""

    def metadata(self) -> str | None:
        """Return the text stored as the table's comment."""
        table = Identifier(self.name).as_string(self.client)
        there, text = self._execute(
            "SELECT to_regclass(%(it)s), obj_description(to_regclass(%(it)s))", it=table
        ).fetchone()
        return None if there is None else text or ""

    def store_metadata(self, text: str) -> None:
        """Replace the stored text."""
        self._execute("COMMENT ON TABLE {table} IS {text}", text=Literal(text))

    def create(self, dimensions: int, metadata: str) -> None:
        """Create the collection, empty, and remove any earlier one of that name."""
        with self.client.transaction():
            self._execute("DROP TABLE IF EXISTS {table}")
            self._execute(
                "CREATE TABLE {table} (id text PRIMARY KEY, label text NOT NULL DEFAULT '', "
                "vector vector({dimensions}) NOT NULL)",
                dimensions=Literal(dimensions),
            )
            self.store_metadata(metadata)

    def upsert(self, ids: Sequence[str], vectors: np.ndarray, labels: Sequence[str] | None = None) -> None:
        """Store items; an item whose id is stored already is updated."""
        insert = (
            "INSERT INTO {table} (id, label, vector) VALUES (%(id)s, coalesce(%(label)s, ''), %(vector)b) "
            "ON CONFLICT (id) DO UPDATE SET label = coalesce(%(label)s, {table}.label), vector = excluded.vector"
        )
        text = SQL(insert).format(table=Identifier(self.name))
        row_labels: Sequence[str | None] = labels or [None] * len(ids)
        rows = zip(ids, row_labels, map(Vector, vectors), strict=True)
        with self.client.transaction(), self.client.cursor() as cursor:
            cursor.executemany(text, [dict(zip(("id", "label", "vector"), row, strict=True)) for row in rows])

    def index(self, approximate: bool) -> None:
        """Make all stored items searchable."""
        if approximate:
            self._execute(
                "CREATE INDEX IF NOT EXISTS {name} ON {table} USING hnsw (vector vector_ip_ops) "
                "WITH (m = 32, ef_construction = 128)",
                name=Identifier(f"{self.name}_by_vsehub"),
            )
        self._execute("ANALYZE {table}")

    def count(self) -> int:
        """Return the number of items."""
        return int(self._execute("SELECT count(*) FROM {table}").fetchone()[0])

    def search(self, vectors: np.ndarray, k: int) -> list[Hits]:
        """Return the k best items of each row of vectors."""
        self._execute("SET hnsw.ef_search = {ef}", ef=Literal(min(max(_CANDIDATES, k), 1000)))
        ask = "SELECT id, label, -(vector <#> %(query)s) FROM {table} ORDER BY vector <#> %(query)s LIMIT %(k)s"
        return [self._execute(ask, query=Vector(vector), k=k).fetchall() for vector in vectors]

    def delete(self, ids: Sequence[str]) -> None:
        """Remove items; unknown ids are ignored."""
        self._execute("DELETE FROM {table} WHERE id = ANY(%(ids)s)", ids=list(ids))

    def scan(self) -> Iterator[Rows]:
        """Yield all items in batches."""
        with self.client.transaction(), self.client.cursor("items") as cursor:
            cursor.execute(SQL("SELECT id, vector FROM {}").format(Identifier(self.name)))
            while rows := cursor.fetchmany(_BATCH):
                yield [name for name, _ in rows], [vector.to_numpy() for _, vector in rows]

    def _execute(self, sql: str, **values: Any) -> Any:
        """Execute SQL; {table} is the table's quoted name, other braces and %(...)s are `values`."""
        parts = {name: value for name, value in values.items() if isinstance(value, Composable)}
        others = {name: value for name, value in values.items() if name not in parts}
        return self.client.execute(SQL(sql).format(table=Identifier(self.name), **parts), others or None)


def note(uri_code: str, name: str, k: int) -> tuple[str, str]:
    """Return the import and the search of a usage note."""
    return (
        "import psycopg\nfrom pgvector.psycopg import register_vector\n",
        f"base = psycopg.connect({uri_code}, autocommit=True)\n"
        f"register_vector(base)\n"
        f'base.execute("SET hnsw.ef_search = {min(max(_CANDIDATES, k), 1000)}")\n'
        f"only = 'TRUE'  # all items, or a condition: \"label <> ''\", for example. Where few are left of an index's\n"
        f"# candidates, pgvector 0.8 and newer look for more: base.execute('SET hnsw.iterative_scan = strict_order')\n"
        f"ask = f'SELECT id, -(vector <#> %(q)s) FROM \"{name}\" WHERE {{only}} ORDER BY vector <#> %(q)s LIMIT {k}'\n"
        f'lists = [base.execute(ask, {{"q": vector}}).fetchall() for vector in vectors]\n'
        f"ids = [[name for name, _ in hits] for hits in lists]\n"
        f"products = np.array([[product for _, product in hits] for hits in lists])\n",
    )


def read_biases(database: PGVector, ids: list[str], field: str) -> list[tuple[str, Any, Any]]:
    """Return (id, key, number in the field or None) of each item with one of the ids."""
    number = "(to_jsonb(item) ->> %(field)s)::float8"  # null, too, where there is no such column
    text = f"SELECT id::text, id::text, {number} FROM {{table}} item WHERE id::text = ANY(%(ids)s)"
    return database._execute(text, ids=ids, field=field).fetchall()


def put_biases(database: PGVector, biases: dict[str, float], field: str) -> None:
    """Write {key: number} and change nothing else."""
    name = Identifier(field)
    database._execute("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} double precision", name=name)
    text = (
        "UPDATE {table} SET {name} = new.bias FROM unnest(%(keys)s::text[], %(biases)s::float8[]) AS new(key, bias) "
        "WHERE {table}.id::text = new.key"
    )
    database._execute(text, keys=list(biases), biases=list(biases.values()), name=name)


def bias_note(uri_code: str, name: str, k: int, scale: float, field: str, vector: str | None) -> tuple[str, str]:
    """Return the imports and the search of a note that ranks by the stored biases."""
    vector = vector or "vector"
    score = f'{scale!r} * -("{vector}" <#> %(q)s) - "{field}"'
    return (
        "import psycopg\nfrom pgvector.psycopg import register_vector\n",
        f"base = psycopg.connect({uri_code}, autocommit=True)\n"
        f"register_vector(base)\n"
        f"# Every row is compared. To compare only the nearest, found by an index, replace the table's name by:\n"
        f'# (SELECT * FROM "{name}" ORDER BY "{vector}" <#> %(q)s LIMIT {max(RERANKED, 4 * k)})\n'
        f'ask = \'SELECT {score} AS score, id FROM "{name}" WHERE "{field}" IS NOT NULL \'\n'
        f"ask += 'ORDER BY score DESC LIMIT {k}'\n"
        f'ranked = [base.execute(ask, {{"q": vector}}).fetchall() for vector in queries]\n',
    )
