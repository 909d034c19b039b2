"""`rerank correct=`: collections that vsehub did not make get a field, and nothing else of them changes."""

import json
import subprocess
import sys
from contextlib import closing, contextmanager

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from servers import installed

from vsehub.serving.databases import foreign, milvus
from vsehub.serving.databases.foreign import FIELD

ITEMS, DIM, K = 60, 12, 7
NAMES = [f"{7 * row + 3}" for row in range(ITEMS)]


def unit(rows, seed):
    vectors = np.random.default_rng(seed).normal(size=(rows, DIM)) + 0.4
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


class OfQdrant:
    uri_fixture, options = "qdrant_server", ("correct_vector=image",)

    def __init__(self, uri):
        import qdrant_client
        from qdrant_client import models

        self.client, self.models = qdrant_client.QdrantClient(url=uri), models

    def fill(self, vectors):
        from qdrant_client import models

        params = models.VectorParams(size=DIM, distance=models.Distance.COSINE)
        self.client.create_collection("theirs", {"image": params})
        points = [
            models.PointStruct(id=int(name), vector={"image": one.tolist()}, payload={"price": 3 * row, "tags": ["a"]})
            for row, (name, one) in enumerate(zip(NAMES, vectors, strict=True))
        ]
        extra = models.PointStruct(id=1, vector={"image": [1.0] + [0.0] * (DIM - 1)}, payload={"price": 1})
        self.client.upsert("theirs", [*points, extra])

    def take_vector(self, name):
        self.client.delete_vectors("theirs", ["image"], [name])

    def rows(self):
        found, _ = self.client.scroll("theirs", limit=1000, with_vectors=True)
        return {str(one.id): (one.vector.get("image"), one.payload) for one in found}

    def biases(self):
        return {name: payload.get(FIELD) for name, (_, payload) in self.rows().items()}

    def others(self):
        return {
            # The client's own mode normalises vectors again where it is searched, which changes their last bits.
            name: (
                None if vector is None else np.round(vector, 5).tolist(),
                {key: value for key, value in payload.items() if key != FIELD},
            )
            for name, (vector, payload) in self.rows().items()
        }


class OfPostgres:
    uri_fixture, options = "postgres", ("correct_id=number", "correct_vector=embedding")

    def __init__(self, uri):
        import psycopg
        from pgvector.psycopg import register_vector

        self.base = psycopg.connect(uri, autocommit=True)
        self.base.execute("CREATE EXTENSION IF NOT EXISTS vector")
        register_vector(self.base)
        self.base.execute("DROP TABLE IF EXISTS theirs")
        self.base.execute('DROP SCHEMA IF EXISTS "their-shop" CASCADE')

    def fill(self, vectors):
        self.base.execute(f"CREATE TABLE theirs (number bigint PRIMARY KEY, embedding vector({DIM}), price int)")
        rows = [*zip(map(int, NAMES), vectors, range(ITEMS), strict=True), (1, np.eye(DIM, dtype=np.float32)[0], 5)]
        for row in rows:
            self.base.execute("INSERT INTO theirs VALUES (%s, %s, %s)", row)

    def take_vector(self, name):
        self.base.execute("UPDATE theirs SET embedding = NULL WHERE number = %s", (name,))

    def biases(self):
        return {str(name): bias for name, bias in self.base.execute(f"SELECT number, {FIELD} FROM theirs").fetchall()}

    def others(self):
        found = self.base.execute("SELECT number, embedding::text, price FROM theirs ORDER BY number").fetchall()
        return {str(name): rest for name, *rest in found}


class OfLance:
    uri_fixture, options = None, ("correct_vector=clip",)

    def __init__(self, uri):
        import lancedb

        self.base = lancedb.connect(uri)

    def fill(self, vectors):
        rows = np.vstack([vectors, np.eye(DIM, dtype=np.float32)[:1]])
        clip = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), DIM)
        ids = pa.array([*map(int, NAMES), 1])
        self.base.create_table("theirs", pa.table({"id": ids, "clip": clip, "price": list(range(ITEMS + 1))}))

    def take_vector(self, name):
        self.base.open_table("theirs").update(f"id = {name}", values_sql={"clip": "NULL"})

    def rows(self):
        found = self.base.open_table("theirs").to_arrow().to_pylist()
        return {str(one["id"]): one for one in found}

    def biases(self):
        return {name: one[FIELD] for name, one in self.rows().items()}

    def others(self):
        return {name: {key: one[key] for key in ("clip", "price")} for name, one in self.rows().items()}


class OfMilvus:
    uri_fixture, options = None, ("correct_id=number", "correct_vector=clip")

    def __init__(self, uri):
        self.uri = uri

    @contextmanager
    def client(self):
        from milvus_lite.server_manager import server_manager_instance
        from pymilvus import MilvusClient

        client = MilvusClient(self.uri)  # a folder is open in one process only
        yield client
        client.close()
        server_manager_instance.release_server(self.uri)

    def fill(self, vectors):
        from pymilvus import DataType

        rows = np.vstack([vectors, np.eye(DIM, dtype=np.float32)[:1]])
        with self.client() as client:
            schema = client.create_schema(auto_id=False, enable_dynamic_field=True)
            schema.add_field("number", DataType.INT64, is_primary=True)
            schema.add_field("clip", DataType.FLOAT_VECTOR, dim=DIM)
            schema.add_field("price", DataType.DOUBLE)
            index = client.prepare_index_params()
            index.add_index("clip", metric_type="COSINE", index_type="FLAT")
            client.create_collection("theirs", schema=schema, index_params=index)
            names = [*map(int, NAMES), 1]
            told = zip(names, rows, strict=True)
            client.insert("theirs", [{"number": one, "clip": row, "price": one / 3, "tag": "a"} for one, row in told])

    def rows(self):
        with self.client() as client:
            client.load_collection("theirs")
            found = client.query("theirs", "number >= 0", output_fields=["*"], consistency_level="Strong")
            return {str(one["number"]): dict(one) for one in found}

    def biases(self):
        return {name: one.get(FIELD) for name, one in self.rows().items()}

    def others(self):
        return {name: {key: one[key] for key in ("clip", "price", "tag")} for name, one in self.rows().items()}


KINDS = {"qdrant": OfQdrant, "pgvector": OfPostgres, "lancedb": OfLance, "milvus": OfMilvus}


@pytest.fixture(params=list(KINDS))
def theirs(request, tmp_path):
    """(engine, URI, a collection of others that is filled)."""
    if not installed(request.param):
        pytest.skip(f"vsehub[{request.param}] is not installed")
    kind = KINDS[request.param]
    uri = str(tmp_path / "theirs.db") if kind.uri_fixture is None else request.getfixturevalue(kind.uri_fixture)
    found = kind(uri)
    found.fill(unit(ITEMS, 1))
    return request.param, uri, found


@pytest.fixture
def correct(run_here, theirs, tmp_path):
    """A function that runs `rerank correct=theirs` on the items of the collection."""
    engine, uri, found = theirs
    for name, rows, seed in (("items", ITEMS, 1), ("queries", 30, 2), ("reference", 40, 3)):
        np.save(tmp_path / f"{name}.npy", unit(rows, seed))
    (tmp_path / "ids.txt").write_text("\n".join(NAMES) + "\n")

    def run(*changes, status=0):
        given = [f"{name}={name}.npy" for name in ("items", "queries", "reference")]
        own = f"index={engine}", f"index_uri={uri}", "correct=theirs", *found.options
        return run_here(
            "rerank", *given, "item_ids=ids.txt", "criterion=is", *own, f"k={K}", "biases=true", *changes, status=status
        )

    return run


def test_only_the_field_changes_and_the_note_ranks_by_it(correct, theirs, tmp_path):
    engine, _, found = theirs
    before = found.others()
    out = correct()
    assert "it finds 100.0% of the 7 best" in out
    assert found.others() == before
    table = pq.read_table(tmp_path / "rerank" / "biases.parquet").to_pydict()
    wanted = dict(zip(table["id"], table["bias"], strict=True))
    biases = found.biases()
    assert biases.pop("1") is None  # an item of theirs that was not given
    assert biases == pytest.approx(wanted)
    if engine == "qdrant":  # its server is in this process
        here: dict = {}
        exec(compile(note_of(tmp_path), "note", "exec"), here)
        ids = here["ids"]
    else:
        ids = note_ran(tmp_path)
    assert ids == ranking_of(tmp_path)


def note_of(folder):
    return (folder / "rerank" / "USAGE.md").read_text().partition("```python\n")[2].partition("```")[0]


def note_ran(folder):
    """The ids of the note, which is run by itself."""
    code = note_of(folder) + "\nimport json\nprint(json.dumps(ids))\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True)
    return json.loads(done.stdout)


def ranking_of(folder):
    ranking = pq.read_table(folder / "rerank" / "ranking.parquet").to_pydict()["item"]
    return [ranking[row : row + K] for row in range(0, len(ranking), K)]


@pytest.mark.parametrize("theirs", ["pgvector"], indirect=True)
def test_a_table_in_a_schema(correct, theirs, tmp_path):
    base = theirs[2].base
    base.execute('CREATE SCHEMA "their-shop"')
    base.execute('ALTER TABLE theirs SET SCHEMA "their-shop"')
    assert "correct: there is no table theirs at" in correct(status=2)
    assert "it finds 100.0% of the 7 best" in correct("correct=their-shop.theirs")
    assert note_ran(tmp_path) == ranking_of(tmp_path)


@pytest.mark.long
def test_a_command_that_is_stopped_is_given_again(correct, theirs, tmp_path, monkeypatch):
    """It goes on without overwrite=true, and the field is all that changes; another command is refused."""
    engine, _, found = theirs
    before, batches = found.others(), foreign.Foreign.batches

    def stopped(*given):
        yield next(batches(*given))
        raise ConnectionError("the line went dead")

    def no_merge(*_):
        raise ConnectionError("the line went dead")

    with monkeypatch.context() as patch:
        patch.setattr(foreign, "BATCH", 20)
        patch.setattr(foreign.Foreign, "batches", stopped)
        if engine == "lancedb":  # writes all at once, when the column is there
            patch.setattr("lancedb.table.LanceTable.merge_insert", no_merge)
        assert "the line went dead" in correct(status=2)
    assert found.others() == before
    if engine != "pgvector":  # which takes all back
        assert f"has a field {FIELD} already" in correct("out=another", status=2)
    correct()
    assert found.others() == before
    table = pq.read_table(tmp_path / "rerank" / "biases.parquet").to_pydict()
    assert {name: found.biases()[name] for name in NAMES} == pytest.approx(dict(zip(*table.values(), strict=True)))


def test_an_item_of_theirs_without_a_vector(correct, theirs):
    """It is counted among the missing, and nothing is written; Milvus has no such item."""
    engine, _, found = theirs
    if engine == "milvus":
        pytest.skip("every item of Milvus has its vectors")
    found.take_vector(int(NAMES[0]))
    said = correct(status=2)
    assert f"1 of 60 items are not in theirs at {theirs[1]}, or have no vector there: {NAMES[0]}." in said
    assert FIELD not in str(found.others())


@pytest.mark.long
def test_what_is_refused_changes_nothing(correct, theirs, tmp_path):
    found = theirs[2]
    before = found.others()
    (tmp_path / "ids.txt").write_text("\n".join([*NAMES[:-2], "999999", "x y"]) + "\n")
    said = correct(status=2)
    assert "2 of 60 items are not in" in said
    assert "999999" in said
    (tmp_path / "ids.txt").write_text("\n".join(NAMES) + "\n")
    assert "has no" in correct("correct_vector=nowhere", status=2)
    assert "correct: there is no" in correct("correct=nothing", status=2)
    assert "is all that an index can hold" in correct("criterion=qb_norm", "biases=false", status=2)
    assert "correct_vector is 'a b'" in correct("correct_vector='a b'", status=2)
    assert found.others() == before
    first = correct()
    values = found.biases()
    assert f"has a field {FIELD} already; give overwrite=true" in correct("out=again", status=2)
    correct("out=again", "overwrite=true", "criterion=csls")
    assert found.biases() != values
    assert found.others() == before
    assert "index" in first


@pytest.mark.skipif(not installed("milvus"), reason="vsehub[milvus] is not installed")
def test_an_older_milvus(run_here, given_milvus, tmp_path):
    """It would need the vectors again; nothing is sent."""
    versions = {"v2.3.5-lite": False, "v2.6.1": False, "2.6.2": True, "v2.6.10-rc1": True, "v3.0.0": True}
    assert {one: milvus.merges(one) for one in versions} == versions
    if given_milvus is None:
        return
    from pymilvus import MilvusClient

    np.save(tmp_path / "v.npy", unit(20, 1))
    with closing(MilvusClient(given_milvus)) as client:
        if milvus.merges(client.get_server_version()):
            return
        client.create_collection("theirs", DIM, metric_type="IP")
    own = "index=milvus", f"index_uri={given_milvus}", "correct=theirs"
    said = run_here("rerank", "items=v.npy", "queries=v.npy", "criterion=csls", *own, status=2)
    assert "version 2.6.2 or newer" in said


@pytest.mark.parametrize("theirs", ["pgvector"], indirect=True)
@pytest.mark.parametrize("kind", ["hnsw", "ivfflat"])
def test_an_index_of_theirs_in_postgres(correct, theirs, kind):
    """It gives the whole shortlist, of which pgvector's own settings would give 40 items, or those of one list."""
    _, uri, found = theirs
    (version,) = found.base.execute("SELECT extversion FROM pg_extension WHERE extname = 'vector'").fetchone()
    if kind == "ivfflat" and tuple(map(int, version.split("."))) < (0, 8):
        pytest.skip(f"pgvector {version} searches as many lists as the user sets")
    lists = " WITH (lists = 8)" if kind == "ivfflat" else ""
    found.base.execute(f"CREATE INDEX ON theirs USING {kind} (embedding vector_ip_ops){lists}")
    indexed = f"{uri}&options=-c%20enable_seqscan%3Doff"  # which Postgres does not use for so few items
    assert "it finds 100.0% of the 58 best" in correct("k=58", f"index_uri='{indexed}'")


def test_settings_that_go_together(run_here, tmp_path):
    np.save(tmp_path / "v.npy", unit(20, 1))
    given = "rerank", "items=v.npy", "queries=v.npy", "criterion=csls"
    assert "give its engine and address too" in run_here(*given, "correct=theirs", status=2)
    said = run_here(*given, "index=lancedb", "index_uri=x", "correct='a b'", status=2)
    assert "correct is 'a b'; expected the name of a collection" in said
    assert "correct_id given without correct" in run_here(*given, "correct_id=a", status=2)
    said = run_here(*given, "correct=a", "index=lancedb", "index_uri=x", "index_approximate=true", status=2)
    assert "index_approximate: for collections that vsehub fills" in said
