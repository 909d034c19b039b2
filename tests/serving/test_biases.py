"""Biases in a collection of somebody else: one contract over all engines (see `conftest`)."""

import numpy as np
import pyarrow as pa
import pytest
from rows import rows_of
from test_estimator import refused

from vsehub.serving.databases.biases import bias_note, write_biases

ROWS, DIM, K = 40, 8, 5
RANDOM = np.random.default_rng(0)
VECTORS = RANDOM.normal(size=(ROWS, DIM)).astype("float32")
QUERIES = RANDOM.normal(size=(7, DIM)).astype("float32")
BIASES = RANDOM.normal(size=ROWS)
IDS, NAMES = [str(row) for row in range(ROWS)], [f'it\'s "{row}" \\ ☃ % {{0}}' for row in range(ROWS)]


@pytest.fixture
def theirs(location):
    """A collection that vsehub did not make, with numbers as ids, another name for the vectors, and a field."""
    table = pa.table({"id": range(ROWS), "name": NAMES})
    with location.connect() as database:
        if location.engine == "milvus":
            from pymilvus import DataType

            schema = database.client.create_schema(auto_id=False, enable_dynamic_field=True)
            schema.add_field("id", DataType.INT64, is_primary=True)
            schema.add_field("embedding", DataType.FLOAT_VECTOR, dim=DIM)
            schema.add_field("name", DataType.VARCHAR, max_length=50)
            index = database.client.prepare_index_params()
            index.add_index("embedding", index_type="FLAT", metric_type="IP")
            database.client.create_collection(location.name, schema=schema, index_params=index)
            rows = [row | {"embedding": vector} for row, vector in zip(table.to_pylist(), VECTORS, strict=True)]
            database.client.insert(location.name, rows)
        elif location.engine == "lancedb":
            vectors = pa.FixedSizeListArray.from_arrays(VECTORS.ravel(), DIM)
            database.client.create_table(location.name, table.append_column("embedding", vectors))
        elif location.engine == "qdrant":
            from qdrant_client import models

            database.client.create_collection(
                location.name, {"embedding": models.VectorParams(size=DIM, distance=models.Distance.DOT)}
            )
            payloads = table.select(["name"]).to_pylist()
            database.client.upload_collection(location.name, {"embedding": VECTORS}, payloads, range(ROWS), wait=True)
        else:
            database._execute(f"CREATE TABLE {{table}} (id bigint PRIMARY KEY, name text, embedding vector({DIM}))")
            for row, vector in zip(table.to_pylist(), VECTORS, strict=True):
                database._execute("INSERT INTO {table} VALUES (%(id)s, %(name)s, %(vector)s)", **row, vector=vector)
    return location


def stored(location):
    with location.connect() as database:
        rows = rows_of(database, location.engine)
    return {str(key): row | {"embedding": list(row["embedding"])} for key, row in rows.items()}


def without(rows, *fields):
    return {key: {name: value for name, value in row.items() if name not in fields} for key, row in rows.items()}


def test_one_number_is_written_and_nothing_else(theirs, tmp_path, monkeypatch):
    before = stored(theirs)
    for ids, biases in (([*IDS[:3], "77", "absent"], BIASES[:5]), (IDS[:2], [0.5, np.nan]), (IDS[:2], BIASES[:3])):
        refused("77" if "77" in ids else "biases", lambda ids=ids, biases=biases: write_biases(theirs, ids, biases))
    assert stored(theirs) == before  # not even a field
    order = RANDOM.permutation(ROWS)[:30]
    assert write_biases(theirs, [IDS[row] for row in order], BIASES[order]) == 30
    after = stored(theirs)
    assert without(after, "bias") == before
    assert {key: row.get("bias") for key, row in after.items()} == {
        IDS[row]: pytest.approx(BIASES[row]) if row in order else None for row in range(ROWS)
    }
    monkeypatch.chdir(tmp_path)
    np.save("queries.npy", 3 * QUERIES)
    unit = QUERIES / np.linalg.norm(QUERIES, axis=1, keepdims=True)
    for normalize, rows in ((None, 3 * QUERIES), (True, unit)):
        scores = 2.5 * rows @ VECTORS[order].T - BIASES[order]
        ran = {}
        exec(bias_note(theirs, tmp_path, 2.5, K, vector="embedding", normalize=normalize), ran)
        assert [list(map(str, ids)) for ids in ran["ids"]] == [
            [IDS[order[position]] for position in best[:K]] for best in np.argsort(-scores)
        ]
        np.testing.assert_allclose(ran["scores"], -np.sort(-scores)[:, :K], rtol=1e-4, atol=1e-4)
        for name in ("client", "base"):
            if hasattr(ran.get(name), "close"):
                ran[name].close()
    assert write_biases(theirs, IDS, np.zeros(ROWS), only_missing=True) == 10
    assert {key: row["bias"] for key, row in stored(theirs).items()} == {
        IDS[row]: pytest.approx(BIASES[row]) if row in order else 0.0 for row in range(ROWS)
    }
    assert write_biases(theirs, IDS[:5], BIASES[:5], field="other") == 5
    again = stored(theirs)
    assert [again[key].get("other") for key in IDS[:6]] == [*map(pytest.approx, BIASES[:5]), None]
    assert without(again, "bias", "other") == before


@pytest.mark.parametrize("location", ["milvus"], indirect=True)
@pytest.mark.parametrize("settings", [{"auto_id": True}, {"enable_dynamic_field": False}])
def test_collections_of_milvus_whose_items_cannot_be_changed(settings, location):
    from pymilvus import DataType

    with location.connect() as database:
        schema = database.client.create_schema(**{"auto_id": False, "enable_dynamic_field": True} | settings)
        schema.add_field("id", DataType.INT64, is_primary=True)
        schema.add_field("vector", DataType.FLOAT_VECTOR, dim=DIM)
        database.client.create_collection(location.name, schema=schema)
    refused("uri", lambda: write_biases(location, IDS, BIASES))
