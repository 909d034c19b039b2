import pytest


@pytest.fixture(autouse=True)
def own_caches(tmp_path, monkeypatch):
    """What is remembered of pictures and shards lies in a folder of the test's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
