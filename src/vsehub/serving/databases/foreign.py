"""Collections that vsehub did not make: the bias of each item as one more field, and the expression that ranks by it.

The vectors stay as they are, so that the engine's own search finds a shortlist by plain similarity, which the
expression ranks by a·s - b. Items of the collection without the field are left out.
"""

import os
import re
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from vsehub.checks import fail, require
from vsehub.io.address import Address
from vsehub.io.progress import bar
from vsehub.io.rows import listed
from vsehub.neighbors.vectors import as_vectors, given_back
from vsehub.serving.corrected import unit_rows
from vsehub.serving.databases.base import CONNECT_SECONDS
from vsehub.serving.databases.engines import ENGINES, Place, without_secret

FIELD = "vsehub_bias"
SHORTLIST = 1000  # items that plain search finds, of which the corrected ranking is made
BATCH = 1000
PATIENCE = 300  # seconds for one request, once a server has answered
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Foreign(ABC):
    """A collection of others. ids: the ids of the items, in their order, which are the keys of the collection.

    place: where it is. id_column, vector_column: the names of its columns; None: the engine's usual one. scale: a.
    """

    usual_vector: ClassVar[str | None] = "vector"

    def __init__(
        self, place: Place, ids: Sequence[str], scale: float, id_column: str | None, vector_column: str | None
    ):
        self.place, self.ids, self.scale = place, ids, scale
        self.id_column, self.vector_column = id_column or "id", vector_column or self.usual_vector
        for setting, column in (("correct_id", self.id_column), ("correct_vector", self.vector_column)):
            require(
                column is None or _NAME.fullmatch(column) is not None,
                f"{setting} is {column!r}; expected letters, digits and underscores, no digit first",
            )
        self._rows = {one: row for row, one in enumerate(ids)}

    @abstractmethod
    def check(self) -> bool:
        """Whether it has the field already. Raises InputError if there is no such collection, column or distance."""

    @abstractmethod
    def among(self, ids: Sequence[str]) -> set[str]:
        """Which of the ids it holds."""

    @abstractmethod
    def write(self, bias: Sequence[float]) -> None:
        """Write the bias of each item, and touch nothing else."""

    @abstractmethod
    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """Ids and scores of the k best of a query (D,), by the expression of the note or plain."""

    @abstractmethod
    def note(self, k: int) -> tuple[str, str]:
        """Imports, and code in the engine's own client that gives `ids` for `vectors`."""

    @abstractmethod
    def close(self) -> None:
        """End the connection."""

    def require(self, replace: bool) -> None:
        """Raise InputError for a field that must not be replaced, and for items that the collection does not hold."""
        there = self.check()
        require(
            replace or not there,
            f"correct: {self.place.address} has a field {FIELD} already; give overwrite=true to replace it",
        )
        missing: list[str] = []
        for start in range(0, len(self.ids), BATCH):
            some = self.ids[start : start + BATCH]
            held = self.among(some)
            missing += [one for one in some if one not in held]
        require(
            not missing,
            f"correct: {len(missing):,} of {len(self.ids):,} items are not in {self.place.address}: {listed(missing)}. "
            f"Give the ids that it has (item_ids=FILE), and correct_id=COLUMN if that is not {self.id_column}",
        )

    def search(self, queries: Any, k: int = 10, corrected: bool = True) -> tuple[Any, Any]:
        """Values and positions (Q, k) as `ServedIndex.search` gives them."""
        asked = as_vectors("queries", queries)
        values = torch.full((len(asked), k), -torch.inf)
        positions = torch.full((len(asked), k), -1, dtype=torch.int64)
        with self.place.asking():
            for row, query in enumerate(asked.rows(0, len(asked)).float().cpu().numpy()):
                for rank, (one, score) in enumerate(self.find(query, k, corrected)[:k]):
                    if one in self._rows:
                        values[row, rank], positions[row, rank] = score, self._rows[one]
        return given_back(queries, values, positions)

    def batches(self, bias: Sequence[float]) -> Iterator[tuple[Sequence[str], Sequence[float]]]:
        """Ids and biases, some at a time, with a bar."""
        with bar(f"writing {FIELD}", total=len(self.ids), unit=" items") as steps:
            for start in range(0, len(self.ids), BATCH):
                yield self.ids[start : start + BATCH], bias[start : start + BATCH]
                steps.update(len(self.ids[start : start + BATCH]))

    @property
    def _uri(self) -> str:
        return Address(self.place.uri).opened("index_uri")


class QdrantPayload(Foreign):
    """A payload of the points of Qdrant, whose ids are whole numbers or UUIDs. vector_column: the vector's name."""

    usual_vector = None

    def __init__(self, *given: Any):
        from qdrant_client import QdrantClient

        super().__init__(*given)
        key = os.environ.get("QDRANT_API_KEY")
        settings: dict[str, Any] = {"url": self._uri, "api_key": key, "check_compatibility": False}
        with closing(QdrantClient(timeout=CONNECT_SECONDS, **settings)) as asked:
            asked.get_collections()
        self._client = QdrantClient(timeout=PATIENCE, **settings)

    def check(self) -> bool:
        """See `Foreign`."""
        from qdrant_client.models import Distance, Filter, IsEmptyCondition, PayloadField, VectorParams

        name, where = self.place.name, self.place.address
        require(self._client.collection_exists(name), f"correct: there is no collection {where}")
        vectors = self._client.get_collection(name).config.params.vectors
        own = vectors if self.vector_column is None else (vectors or {}).get(self.vector_column)  # type: ignore[union-attr]
        if not isinstance(own, VectorParams):
            fail(f"correct: {where} has no vector {self.vector_column or 'without a name'}; give correct_vector=NAME")
        require(
            own.distance in (Distance.DOT, Distance.COSINE),
            f"correct: {where} is searched by {own.distance}; the correction is of inner products or cosines",
        )
        empty = IsEmptyCondition(is_empty=PayloadField(key=FIELD))
        return self._client.count(name, count_filter=Filter(must_not=[empty]), exact=True).count > 0

    def among(self, ids: Sequence[str]) -> set[str]:
        """See `Foreign`."""
        points = [_point(one) for one in ids]
        known = [one for one in points if one is not None]
        found = {str(one.id) for one in self._client.retrieve(self.place.name, known, with_payload=False)}
        return {one for one, point in zip(ids, points, strict=True) if str(point) in found}

    def write(self, bias: Sequence[float]) -> None:
        """See `Foreign`."""
        from qdrant_client.models import SetPayload, SetPayloadOperation

        for ids, values in self.batches(bias):
            changes = [
                SetPayloadOperation(set_payload=SetPayload(payload={FIELD: value}, points=[_point(one)]))
                for one, value in zip(ids, values, strict=True)
            ]
            self._client.batch_update_points(self.place.name, changes, wait=True)

    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """See `Foreign`."""
        from qdrant_client import models

        empty = models.IsEmptyCondition(is_empty=models.PayloadField(key=FIELD))
        asked: Any = {"query": query.tolist(), "using": self.vector_column, "filter": models.Filter(must_not=[empty])}
        if not corrected:
            plain = {"query_filter": asked.pop("filter"), "with_payload": False}
            found = self._client.query_points(self.place.name, **asked, **plain, limit=k)
        else:
            scaled = models.MultExpression(mult=[self.scale, "$score"])
            rule = models.FormulaQuery(
                formula=models.SumExpression(sum=[scaled, models.MultExpression(mult=[-1.0, FIELD])])
            )
            shortlist = models.Prefetch(**asked, limit=max(k, SHORTLIST))
            found = self._client.query_points(
                self.place.name, prefetch=shortlist, query=rule, limit=k, with_payload=False
            )
        return [(str(hit.id), hit.score) for hit in found.points]

    def note(self, k: int) -> tuple[str, str]:
        """See `Foreign`."""
        named = f", using={self.vector_column!r}" if self.vector_column else ""
        return (
            "import os\n\nimport numpy as np\nfrom qdrant_client import QdrantClient, models\n",
            f'client = QdrantClient(url={str(self.place.uri)!r}, api_key=os.environ.get("QDRANT_API_KEY"))\n'
            f'empty = models.IsEmptyCondition(is_empty=models.PayloadField(key="{FIELD}"))\n'
            f"only = models.Filter(must_not=[empty])  # further conditions: must=[models.FieldCondition(...)]\n"
            f'scaled = models.MultExpression(mult=[{self.scale!r}, "$score"])\n'
            f'less = models.MultExpression(mult=[-1.0, "{FIELD}"])\n'
            f"rule = models.FormulaQuery(formula=models.SumExpression(sum=[scaled, less]))\n"
            f"ask = dict(limit={max(k, SHORTLIST)}, filter=only{named})\n"
            f"shortlists = [models.Prefetch(query=one.tolist(), **ask) for one in vectors]\n"
            f'found = [client.query_points("{self.place.name}", prefetch=one, query=rule, limit={k}) '
            f"for one in shortlists]\n"
            f"ids = [[str(hit.id) for hit in answer.points] for answer in found]\n",
        )

    def close(self) -> None:
        """See `Foreign`."""
        self._client.close()


def _point(name: str) -> Any:
    """The id of a point: a whole number or a UUID; None for another text."""
    if name.isascii() and name.isdecimal():
        return int(name)
    try:
        return str(uuid.UUID(name))
    except ValueError:
        return None


class PostgresColumn(Foreign):
    """A column of a table of Postgres with a column of pgvector's type."""

    def __init__(self, *given: Any):
        import psycopg
        from pgvector.psycopg import register_vector

        super().__init__(*given)
        self._base = psycopg.connect(self._uri, autocommit=True, connect_timeout=CONNECT_SECONDS)
        register_vector(self._base)

    def check(self) -> bool:
        """See `Foreign`."""
        found = self._base.execute(
            "SELECT attname, format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = to_regclass(%s) "
            "AND attnum > 0 AND NOT attisdropped",
            (f'"{self.place.name}"',),
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
        found = self._do("SELECT {id}::text FROM {table} WHERE {id}::text = ANY(%(ids)s)", {"ids": list(ids)})
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
        names = {"id": self.id_column, "vector": self.vector_column, "field": FIELD, "table": self.place.name}
        text = _SQL.format(**{name: f'"{own}"' for name, own in names.items()})
        values = f'{{"q": Vector(one), "k": {k}, "a": {self.scale!r}, "n": {max(k, SHORTLIST)}}}'
        return (
            "import numpy as np\nimport psycopg\nfrom pgvector import Vector\n"
            "from pgvector.psycopg import register_vector\n",
            f"base = psycopg.connect({str(self.place.uri)!r}, autocommit=True)\nregister_vector(base)\n"
            f"ask = '''{text}'''\n"
            f"found = [base.execute(ask, {values}).fetchall() for one in vectors]\n"
            f"ids = [[str(one) for one, _ in hits] for hits in found]\n",
        )

    def close(self) -> None:
        """See `Foreign`."""
        self._base.close()

    def _do(self, text: str, values: dict[str, Any] | None = None) -> Any:
        from psycopg.sql import SQL, Identifier

        names = {"table": self.place.name, "id": self.id_column, "vector": str(self.vector_column), "field": FIELD}
        return self._base.execute(SQL(text).format(**{name: Identifier(own) for name, own in names.items()}), values)


# The shortlist by plain similarity, which an index of the vectors serves, ranked by a·s - b.
_SQL = (
    "SELECT {id}, score FROM (SELECT {id}, %(a)s * -({vector} <#> %(q)s) - {field} AS score FROM {table} "
    "WHERE {field} IS NOT NULL ORDER BY {vector} <#> %(q)s LIMIT %(n)s) AS shortlist ORDER BY score DESC LIMIT %(k)s"
)
_PLAIN_SQL = (
    "SELECT {id}, -({vector} <#> %(q)s) FROM {table} WHERE {field} IS NOT NULL ORDER BY {vector} <#> %(q)s LIMIT %(k)s"
)


class LanceColumn(Foreign):
    """A column of a table of LanceDB."""

    def __init__(self, *given: Any):
        import lancedb

        super().__init__(*given)
        settings: dict[str, Any] = (
            {"api_key": os.environ.get("LANCEDB_API_KEY")} if self._uri.startswith("db://") else {}
        )
        self._base = lancedb.connect(self._uri, **settings)

    def check(self) -> bool:
        """See `Foreign`."""
        import pyarrow as pa

        where = self.place.address
        require(
            (self.place.served or Path(self.place.uri).is_dir()) and self.place.name in self._base.list_tables().tables,
            f"correct: there is no table {where}",
        )
        schema = self._table().schema
        for setting, column in (("correct_id", self.id_column), ("correct_vector", self.vector_column)):
            require(
                column in schema.names,
                f"{setting}: {where} has no column {column}; its columns: {', '.join(schema.names)}",
            )
        require(
            pa.types.is_fixed_size_list(schema.field(self.vector_column).type),
            f"correct_vector: the column {self.vector_column} of {where} holds no vectors of one length",
        )
        return FIELD in schema.names

    def among(self, ids: Sequence[str]) -> set[str]:
        """See `Foreign`."""
        found = self._table().search().where(self._condition(ids)).select([self.id_column]).limit(len(ids)).to_arrow()
        return {str(one) for one in found[self.id_column].to_pylist()}

    def write(self, bias: Sequence[float]) -> None:
        """See `Foreign`."""
        import pyarrow as pa

        table = self._table()
        if FIELD not in table.schema.names:
            table.add_columns([pa.field(FIELD, pa.float64())])
        kind = table.schema.field(self.id_column).type
        keys = pa.array(self.ids, pa.string()).cast(kind)
        rows = pa.table({self.id_column: keys, FIELD: pa.array(bias, pa.float64())})
        table.merge_insert(self.id_column).when_matched_update_all().execute(rows)
        table.optimize()  # rows that were written anew enter the index of the vectors

    def find(self, query: np.ndarray, k: int, corrected: bool) -> list[tuple[str, float]]:
        """See `Foreign`."""
        count = max(k, SHORTLIST) if corrected else k
        search = self._table().search(query, vector_column_name=self.vector_column).distance_type("dot")
        chosen = [self.id_column, "_distance", *([FIELD] if corrected else [])]
        found = search.where(f"{FIELD} IS NOT NULL", prefilter=True).limit(count).select(chosen).to_arrow()
        scores = 1.0 - found["_distance"].to_numpy().astype(np.float64)
        if corrected:
            scores = self.scale * scores - found[FIELD].to_numpy()
        order = np.argsort(-scores, kind="stable")[:k]
        names = found[self.id_column].to_pylist()
        return [(str(names[row]), float(scores[row])) for row in order]

    def note(self, k: int) -> tuple[str, str]:
        """See `Foreign`."""
        folder = not self.place.served
        key = ', api_key=os.environ["LANCEDB_API_KEY"]' if self._uri.startswith("db://") else ""
        address = (
            f"Path({str(Path(self.place.uri).absolute())!r}).resolve(strict=True)"
            if folder
            else repr(str(self.place.uri))
        )
        first = "\n".join([*(["import os"] if key else []), *(["from pathlib import Path"] if folder else [])])
        return (
            f"{first}{chr(10) * 2 if first else ''}import lancedb\nimport numpy as np\n",
            f'table = lancedb.connect({address}{key}).open_table("{self.place.name}")\n'
            f'named = {{"vector_column_name": "{self.vector_column}"}}\n'
            f'asked = [table.search(one, **named).distance_type("dot") for one in vectors]\n'
            f"only = '{FIELD} IS NOT NULL'  # and further conditions: ' AND price < 10'\n"
            f"shortlists = [one.where(only, prefilter=True).limit({max(k, SHORTLIST)}).to_arrow() for one in asked]\n"
            f"ids = []\n"
            f"for hits in shortlists:\n"
            f'    scores = {self.scale!r} * (1 - hits["_distance"].to_numpy()) - hits["{FIELD}"].to_numpy()\n'
            f'    ids.append([str(hits["{self.id_column}"][int(row)]) for row in np.argsort(-scores)[:{k}]])\n',
        )

    def close(self) -> None:
        """See `Foreign`; there is no connection to end."""

    def _condition(self, ids: Sequence[str]) -> str:
        import pyarrow as pa

        if pa.types.is_integer(self._table().schema.field(self.id_column).type):
            numbers = [one for one in ids if one.isascii() and one.isdecimal()]
            return f"{self.id_column} IN ({', '.join(numbers) or 'NULL'})"
        return (
            f"{self.id_column} IN ({', '.join(chr(39) + one.replace(chr(39), chr(39) * 2) + chr(39) for one in ids)})"
        )

    def _table(self) -> Any:
        return self._base.open_table(self.place.name)


KINDS: dict[str, type[Foreign]] = {"qdrant": QdrantPayload, "pgvector": PostgresColumn, "lancedb": LanceColumn}


@contextmanager
def open_foreign(
    place: Place, ids: Sequence[str], scale: float, id_column: str | None = None, vector_column: str | None = None
) -> Iterator[Foreign]:
    """A collection of others within the block. Raises InputError if the engine does not answer."""
    require_kind_of(place.engine)
    with place.asking():
        found = KINDS[place.engine](place, ids, scale, id_column, vector_column)
        with closing(found):
            yield found


def require_kind_of(engine: str) -> None:
    """Raise InputError for an engine whose rows cannot get a further field without their vectors being written."""
    require(
        engine in KINDS,
        f"correct: {ENGINES[engine].title} writes whole rows only, vectors included, so the field cannot be added; "
        f"choose one of {', '.join(KINDS)}, or fill a collection with index={engine} index_name=NAME",
    )


def usage_of(collection: Foreign, normalize: bool | None, queries: str = "queries.npy", k: int = 10) -> str:
    """Python that ranks a collection by its field with the engine's client: `ids` of the k best."""
    imports, search = without_secret(collection.place.uri, *collection.note(k))
    read = f'queries = np.load({queries!r}).astype("float32")\n{unit_rows(normalize)}vectors = queries\n'
    return f"{imports}\n{read}{search}"
