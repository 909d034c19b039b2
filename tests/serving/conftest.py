"""The engines that the tests of databases run on.

Milvus Lite and LanceDB in folders, Postgres from the wheel pgserver, Qdrant's client in memory instead of a server.
VSEHUB_TEST_MILVUS, VSEHUB_TEST_POSTGRES and VSEHUB_TEST_QDRANT: URIs of servers to be used
instead; the tests leave collections there.
"""

import gc
import importlib.util
import os
import tempfile
import uuid
import warnings

import pytest

from vsehub.serving.databases.engines import ENGINES, Location


@pytest.fixture(scope="session")
def postgres():
    """The URI of a Postgres with pgvector."""
    pytest.importorskip("pgserver")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        server = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture
def qdrant_server(monkeypatch):
    """The URI of a Qdrant: the client's in-memory mode stands for the server, within this process."""
    import qdrant_client

    server = qdrant_client.QdrantClient(":memory:")
    close = server.close
    server.close = lambda: None  # the server outlives its connections
    monkeypatch.setattr(qdrant_client, "QdrantClient", lambda *, url, **_: server)
    yield "http://qdrant.invalid"
    close()


@pytest.fixture(params=ENGINES)
def location(request, tmp_path):
    """A location without a collection, in each engine."""
    engine = request.param
    if any(importlib.util.find_spec(package) is None for package in ENGINES[engine].packages):
        pytest.skip(f"vsehub[{engine}] is not installed")
    uris = {
        "milvus": lambda: str(tmp_path / "index.milvus.db"),
        "lancedb": lambda: str(tmp_path / "index.lancedb"),
        "qdrant": lambda: request.getfixturevalue("qdrant_server"),
        "pgvector": lambda: request.getfixturevalue("postgres"),
    }
    server = os.environ.get(f"VSEHUB_TEST_{engine.replace('pgvector', 'postgres').upper()}")
    yield Location(engine, server or uris[engine](), f"t{uuid.uuid4().hex[:12]}")
    if engine == "milvus":
        gc.collect()  # gRPC's servers, whose threads end only then
