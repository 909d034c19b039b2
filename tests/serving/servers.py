"""The servers that the tests of databases run against: Postgres from the wheel pgserver, Qdrant's client in memory.

VSEHUB_TEST_MILVUS, VSEHUB_TEST_POSTGRES and VSEHUB_TEST_QDRANT: URIs of others that stand in their place, and in that
of Milvus Lite. The tests remove whatever is in these, and refuse one that holds something when they begin.
"""

import importlib.util
import os
import tempfile
import warnings

import pytest

from vsehub.serving.databases.engines import ENGINES, Place


def installed(engine):
    return all(importlib.util.find_spec(one) is not None for one in ENGINES[engine].packages)


def emptied(engine, uri, first=False):
    """Remove all collections of a server. first: it must hold none."""
    database = Place(engine, uri, "items").opened()
    if engine == "pgvector":
        found = database._base.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'").fetchall()
        names = [name for (name,) in found]
    elif engine == "milvus":
        names = database._client.list_collections()
    else:
        names = [one.name for one in database._client.get_collections().collections]
    assert not (first and names), f"{uri} holds {names}; give the tests an empty server"
    for name in names:
        if engine == "milvus":
            database._client.drop_collection(name)
        elif engine == "pgvector":
            database.beside(name).drop()
        else:
            database._client.delete_collection(name)
    database.close()


def given_server(engine, variable):
    """Of a fixture: the URI in an environment variable, of a server that is emptied afterwards; None if not set."""
    uri = os.environ.get(variable)
    if uri is None:
        yield None
        return
    emptied(engine, uri, first=True)
    yield uri
    emptied(engine, uri)


@pytest.fixture(scope="session")
def postgres():
    """The URI of a Postgres with pgvector."""
    if installed("pgvector") and "VSEHUB_TEST_POSTGRES" in os.environ:
        yield from given_server("pgvector", "VSEHUB_TEST_POSTGRES")
        return
    if importlib.util.find_spec("pgserver") is None or not installed("pgvector"):
        pytest.skip("pgserver or pgvector is not installed: the SQL is not run against a Postgres")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import pgserver

        server = pgserver.get_server(tempfile.mkdtemp(), cleanup_mode="delete")
    yield server.get_uri()
    server.cleanup()


@pytest.fixture(scope="session")
def given_milvus():
    """The URI of a server of Milvus; None: Milvus Lite is used."""
    yield from given_server("milvus", "VSEHUB_TEST_MILVUS")


@pytest.fixture(scope="session")
def given_qdrant():
    """The URI of a server of Qdrant; None: the client's in-memory mode is used."""
    yield from given_server("qdrant", "VSEHUB_TEST_QDRANT")


SERVER = "http://qdrant.invalid"


@pytest.fixture
def qdrant_server(monkeypatch, given_qdrant):
    """The URI of a server of Qdrant: the client's in-memory mode stands for the server, within this process."""
    if not installed("qdrant"):
        pytest.skip("vsehub[qdrant] is not installed")
    if given_qdrant is not None:
        yield given_qdrant
        emptied("qdrant", given_qdrant)
        return
    import qdrant_client

    held = qdrant_client.QdrantClient(":memory:")
    close = held.close
    held.close = lambda: None  # the server outlives its connections

    def connected(*, url, **_):
        assert url == SERVER
        return held

    monkeypatch.setattr(qdrant_client, "QdrantClient", connected)
    yield SERVER
    close()
