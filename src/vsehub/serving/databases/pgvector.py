"""Postgres with the extension pgvector, by a URI postgresql://user@host/database."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vsehub.checks import require
from vsehub.serving.databases.base import CONNECT_SECONDS, FilterExample, ItemRows, Named, Shape, read_items
from vsehub.serving.databases.columns import require_kind

BATCH = 5000
_TYPES = {"string": "text", "int64": "bigint", "double": "double precision", "bool": "boolean"}  # of Arrow's columns
_COPIED = {"bigint": "int8", "double precision": "float8", "boolean": "bool"}  # as psycopg calls them
MOST_INDEXED = 2000  # dimensions of a vector that pgvector can index
EF = 128  # candidates of a query in the approximate index, where k is not larger
_LINKS, _BUILDING = 32, 128


class PGVector(Named):
    """A table of Postgres. Passwords: PGPASSWORD, ~/.pgpass, or any other way of libpq."""

    def __init__(self, uri: str, name: str, embedded: bool):
        import psycopg
        from pgvector.psycopg import register_vector

        self._base = psycopg.connect(uri, autocommit=True, connect_timeout=CONNECT_SECONDS)
        self._name = name
        with self._base.transaction():
            there = self._base.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone()
            if there is None:
                self._base.execute("CREATE EXTENSION vector")
        register_vector(self._base)

    def shape(self) -> Shape | None:
        """See `Database`."""
        if self._one("SELECT to_regclass(%s)", self._quoted()) is None:
            return None
        dimensions = self._one(
            "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector' "
            "AND atttypid = 'vector'::regtype",
            self._quoted(),
        )
        other = self._one(
            "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = relam "
            "JOIN pg_opclass ON pg_opclass.oid = indclass[0] WHERE indrelid = to_regclass(%s) "
            "AND amname IN ('hnsw', 'ivfflat') AND opcname <> 'vector_ip_ops'",
            self._quoted(),
        )
        return Shape(int(dimensions or 0), not other)

    def facts(self) -> str | None:
        """See `Database`; they are the comment of the table."""
        found = self._one("SELECT obj_description(to_regclass(%s))", self._quoted())
        return None if found is None else str(found)

    def create(self, dimensions: int, facts: str) -> None:
        """See `Database`."""
        from psycopg.sql import Literal

        with self._base.transaction():
            self._do(
                "CREATE TABLE {table} (id text PRIMARY KEY, label text NOT NULL DEFAULT '', "
                "vector vector({dimensions}) NOT NULL)",
                dimensions=Literal(dimensions),
            )
            self.keep_facts(facts)

    def keep_facts(self, facts: str) -> None:
        """See `Database`."""
        from psycopg.sql import Literal

        self._do("COMMENT ON TABLE {table} IS {facts}", facts=Literal(facts))

    def put(self, rows: ItemRows) -> None:
        """See `Database`; columns that are not given keep their values."""
        from pgvector import Vector
        from psycopg.sql import SQL, Identifier

        kinds, columns = {"id": "text", "vector": "vector"}, [rows.ids, [Vector(one) for one in rows.vectors]]
        if rows.labels is not None:
            kinds["label"] = "text"
            columns.append(rows.labels)
        with self._base.transaction(), self._base.cursor() as cursor:
            held = {} if rows.fields is None else self._kinds()
            for field in [] if rows.fields is None else rows.fields.schema:
                require_kind(field.name, str(field.type), held.get(field.name, str(field.type)))
                kinds[field.name] = _TYPES[str(field.type)]
                columns.append(rows.fields.column(field.name).to_pylist())  # type: ignore[union-attr]
                kind = SQL(kinds[field.name])
                self._do(
                    "ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {name} {kind}", name=Identifier(field.name), kind=kind
                )
            names = SQL(", ").join(map(Identifier, kinds))
            typed = SQL(", ").join(SQL("{} " + kind).format(Identifier(name)) for name, kind in kinds.items())
            changed = SQL(", ").join(SQL("{0} = excluded.{0}").format(Identifier(name)) for name in list(kinds)[1:])
            cursor.execute(SQL("CREATE TEMP TABLE new_items ({}) ON COMMIT DROP").format(typed))
            with cursor.copy(SQL("COPY new_items ({}) FROM STDIN WITH (FORMAT BINARY)").format(names)) as copy:
                copy.set_types([_COPIED.get(kind, kind) for kind in kinds.values()])
                for row in zip(*columns, strict=True):
                    copy.write_row(row)
            self._do(
                "INSERT INTO {table} ({names}) SELECT {names} FROM new_items ON CONFLICT (id) DO UPDATE SET {changed}",
                names=names,
                changed=changed,
            )

    def update(self, rows: ItemRows) -> None:
        """See `Database`."""
        self.put(rows)

    def finish(self, approximate: bool) -> None:
        """See `Database`."""
        from psycopg.sql import Literal

        if approximate:
            dimensions = self._one(
                "SELECT atttypmod FROM pg_attribute WHERE attrelid = to_regclass(%s) AND attname = 'vector'",
                self._quoted(),
            )
            require(
                int(dimensions) <= MOST_INDEXED,
                f"index_approximate: pgvector indexes at most {MOST_INDEXED} dimensions, and with the bias these are "
                f"{dimensions}; give index_approximate=false",
            )
            if not self._one(
                "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid JOIN pg_am ON pg_am.oid = "
                "relam WHERE indrelid = to_regclass(%s) AND amname = 'hnsw' AND indisvalid",
                self._quoted(),
            ):
                self._do(
                    "CREATE INDEX ON {table} USING hnsw (vector vector_ip_ops) "
                    "WITH (m = {links}, ef_construction = {building})",
                    links=Literal(_LINKS),
                    building=Literal(_BUILDING),
                )
        self._do("ANALYZE {table}")

    def count(self) -> int:
        """See `Database`."""
        return int(self._do("SELECT count(*) FROM {table}").fetchone()[0])

    def search(self, vectors: np.ndarray, k: int) -> list[list[tuple[str, float]]]:
        """See `Database`."""
        from pgvector import Vector
        from psycopg.sql import Literal

        self._do("SET hnsw.ef_search = {ef}", ef=Literal(min(max(EF, k), 1000)))
        return [
            self._do(
                "SELECT id, -(vector <#> %(query)s) FROM {table} ORDER BY vector <#> %(query)s LIMIT %(k)s",
                {"query": Vector(one), "k": k},
            ).fetchall()
            for one in vectors
        ]

    def remove(self, ids: Sequence[str]) -> None:
        """See `Database`."""
        self._do("DELETE FROM {table} WHERE id = ANY(%(ids)s)", {"ids": list(ids)})

    def read(self, ids: Sequence[str] | None = None) -> Iterator[ItemRows]:
        """See `Database`."""
        from psycopg.sql import SQL, Identifier

        chosen = SQL("" if ids is None else " WHERE id = ANY(%(ids)s)")
        query = SQL("SELECT id, label, vector FROM {}{}").format(Identifier(self._name), chosen)
        with self._base.transaction(), self._base.cursor("items") as cursor:
            cursor.execute(query, {"ids": None if ids is None else list(ids)})
            while found := cursor.fetchmany(BATCH):
                names, labels, vectors = zip(*found, strict=True)
                arrays = [None if one is None else one.to_numpy() for one in vectors]
                yield read_items(self._name, names, arrays, labels)

    def drop(self) -> None:
        """See `Database`."""
        self._do("DROP TABLE {table}")

    def size(self) -> int | None:
        """See `Database`."""
        return int(self._one("SELECT pg_total_relation_size(to_regclass(%s))", self._quoted()))

    def close(self) -> None:
        """See `Database`."""
        self._base.close()

    def _kinds(self) -> dict[str, str]:
        """Arrow's names of the columns' types, Postgres's own where these are others."""
        found = self._base.execute(
            "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped",
            (self._quoted(),),
        ).fetchall()
        arrow = {kind: name for name, kind in _TYPES.items()}
        return {str(name): arrow.get(str(kind), str(kind)) for name, kind in found}

    def _do(self, text: str, values: dict[str, Any] | None = None, **parts: Any) -> Any:
        """Execute SQL in which {table} is the table's quoted name and other braces are `parts`."""
        from psycopg.sql import SQL, Identifier

        return self._base.execute(SQL(text).format(table=Identifier(self._name), **parts), values)

    def _one(self, text: str, value: str) -> Any:
        """The only value of the only row."""
        row = self._base.execute(text, (value,)).fetchone()
        return None if row is None else row[0]

    def _quoted(self) -> str:
        """The table's name as `to_regclass` takes it."""
        from psycopg.sql import Identifier

        return Identifier(self._name).as_string(self._base)


def note(uri: str, name: str, k: int, example: FilterExample) -> tuple[str, str]:
    """The imports and the search of a usage note; the search gives `ids` and `products` for `vectors`."""
    chosen = example.text('"')
    return (
        "import numpy as np\nimport psycopg\nfrom pgvector.psycopg import register_vector\n",
        f"base = psycopg.connect({uri!r}, autocommit=True)\n"
        f"register_vector(base)\n"
        f'base.execute("SET hnsw.ef_search = {min(max(EF, k), 1000)}")\n'
        f"only = 'TRUE'  # the items that are searched: {chosen!r}, for example. Where few are left of an index's\n"
        f"# candidates, pgvector 0.8 and newer look for more: base.execute('SET hnsw.iterative_scan = strict_order')\n"
        f"ask = f'SELECT id, -(vector <#> %(q)s) FROM \"{name}\" WHERE {{only}} ORDER BY vector <#> %(q)s LIMIT {k}'\n"
        f'found = [base.execute(ask, {{"q": one}}).fetchall() for one in vectors]\n'
        f"ids = [[one for one, _ in hits] for hits in found]\n"
        f"products = np.array([[product for _, product in hits] for hits in found])\n",
    )
