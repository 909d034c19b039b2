"""Postgres with the extension pgvector, by a URI postgresql://user@host/database."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from vsehub.checks import require
from vsehub.serving.databases.base import CONNECT_SECONDS, FilterExample, ItemRows, Named, Shape
from vsehub.serving.databases.columns import require_kind
from vsehub.serving.databases.foreign import FIELD, SHORTLIST, Foreign

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

    def swap(self, building: "PGVector") -> None:
        """See `Database`; readers wait while the tables are renamed."""
        from psycopg.sql import Identifier

        with self._base.transaction():
            self._do("DROP TABLE IF EXISTS {table}")
            building._do("ALTER TABLE {table} RENAME TO {name}", name=Identifier(self._name))

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
                yield ItemRows(names, np.stack([one.to_numpy() for one in vectors]), labels)

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


class PostgresColumn(Foreign):
    """A column of a table of Postgres with a column of pgvector's type."""

    def __init__(self, *given: Any):
        import psycopg
        from pgvector.psycopg import register_vector

        super().__init__(*given)
        self._base = psycopg.connect(self.uri, autocommit=True, connect_timeout=CONNECT_SECONDS)
        require(
            self._base.execute("SELECT 1 FROM pg_extension WHERE extname = 'vector'").fetchone() is not None,
            f"correct: there is no table of vectors {self.place.address}: the database has no extension vector",
        )
        register_vector(self._base)
        self._base.execute(_CANDIDATES)

    def check(self) -> bool:
        """See `Foreign`."""
        found = self._base.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped",
            (self._quoted(self.place.name),),
        ).fetchall()
        kinds: dict[str, str] = dict(found)
        require(bool(kinds), f"correct: there is no table {self.place.address}")
        for setting, column, kind in (
            ("correct_id", self.id_column, None),
            ("correct_vector", self.vector_column, ("vector", "halfvec")),
        ):
            own = column in kinds and (kind is None or kinds[column] in kind)
            require(
                own,
                f"{setting}: {self.place.address} has no column {column}{' of vectors' if kind else ''}; its columns: "
                f"{', '.join(kinds)}",
            )
        return FIELD in kinds

    def among(self, ids: Sequence[str]) -> set[str]:
        """See `Foreign`."""
        found = self._do(
            "SELECT {id}::text FROM {table} WHERE {id}::text = ANY(%(ids)s) AND {vector} IS NOT NULL",
            {"ids": list(ids)},
        )
        return {str(one) for (one,) in found.fetchall()}

    def write(self, bias: Sequence[float]) -> None:
        """See `Foreign`; all at once: a reader sees no item or every item with its bias."""
        with self._base.transaction(), self._base.cursor() as cursor:
            cursor.execute("CREATE TEMP TABLE vsehub_new (id text, bias float8) ON COMMIT DROP")
            with cursor.copy("COPY vsehub_new FROM STDIN WITH (FORMAT BINARY)") as copy:
                copy.set_types(["text", "float8"])
                for ids, values in self.batches(bias):
                    for row in zip(ids, values, strict=True):
                        copy.write_row(row)
            self._do("ALTER TABLE {table} ADD COLUMN IF NOT EXISTS {field} double precision")
            self._do(
                "UPDATE {table} SET {field} = vsehub_new.bias FROM vsehub_new WHERE {table}.{id}::text = vsehub_new.id"
            )

    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """See `Foreign`."""
        from pgvector import Vector

        text = _SQL if corrected else _PLAIN_SQL
        given = {"q": Vector(query), "k": k, "a": self.scale, "n": max(k, SHORTLIST)}
        return [(str(one), score) for one, score in self._do(text, given).fetchall()]

    def note(self, k: int) -> tuple[str, str]:
        """See `Foreign`."""
        text = _SQL.format(**{name: self._quoted(own) for name, own in self._names().items()})
        values = f'{{"q": Vector(one), "k": {k}, "a": {self.scale!r}, "n": {max(k, SHORTLIST)}}}'
        return (
            "import numpy as np\nimport psycopg\nfrom pgvector import Vector\n"
            "from pgvector.psycopg import register_vector\n",
            f"base = psycopg.connect({str(self.place.uri)!r}, autocommit=True)\nregister_vector(base)\n"
            f"# An index of the vectors serves this if it is of vector_ip_ops; else each query reads the whole table.\n"
            f"base.execute({_CANDIDATES!r})\n"
            f"ask = '''{text}'''\n"
            f"found = [base.execute(ask, {values}).fetchall() for one in vectors]\n"
            f"ids = [[str(one) for one, _ in hits] for hits in found]\n",
        )

    def close(self) -> None:
        """See `Foreign`."""
        self._base.close()

    def _do(self, text: str, values: dict[str, Any] | None = None) -> Any:
        from psycopg.sql import SQL, Identifier

        names = {name: Identifier(*own.split(".")) for name, own in self._names().items()}
        return self._base.execute(SQL(text).format(**names), values)

    def _names(self) -> dict[str, str]:
        """The names in SQL; the table's may begin with that of its schema and a dot."""
        return {"table": self.place.name, "id": self.id_column, "vector": str(self.vector_column), "field": FIELD}

    @staticmethod
    def _quoted(name: str) -> str:
        return ".".join(f'"{part}"' for part in name.split("."))


# Settings of pgvector by which an approximate index gives the whole shortlist; 0.8 and newer have the second ones. The
# vector loads the library, without which Postgres lists none of them.
_CANDIDATES = (
    "SELECT set_config(name, CASE name WHEN 'hnsw.ef_search' THEN '1000' ELSE 'relaxed_order' END, FALSE) "
    "FROM pg_settings WHERE name IN ('hnsw.ef_search', 'hnsw.iterative_scan', 'ivfflat.iterative_scan') "
    "AND '[1]'::vector IS NOT NULL"
)
# The shortlist by plain similarity, which an index of the vectors serves, ranked by a·s - b.
_SQL = (
    "SELECT {id}, score FROM (SELECT {id}, %(a)s * -({vector} <#> %(q)s) - {field} AS score FROM {table} "
    "WHERE {field} IS NOT NULL ORDER BY {vector} <#> %(q)s LIMIT %(n)s) AS shortlist ORDER BY score DESC LIMIT %(k)s"
)
_PLAIN_SQL = (
    "SELECT {id}, -({vector} <#> %(q)s) FROM {table} WHERE {field} IS NOT NULL ORDER BY {vector} <#> %(q)s LIMIT %(k)s"
)


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
