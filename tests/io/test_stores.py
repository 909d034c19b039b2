"""Output folders behind an address: another file system of fsspec stands for an object store."""

import json

import fsspec
import pytest

from vsehub.checks import InputError
from vsehub.io.outputs import MARK, Output

NAMES = ("index.html", "result.json")


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty file system in memory, and caches of our own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    files = fsspec.filesystem("memory")
    files.store.clear()
    files.pseudo_dirs[:] = [""]
    yield files
    files.store.clear()


def there(files, folder="/bucket/one"):
    return sorted(path.removeprefix(f"{folder}/") for path in files.find(folder))


def written(address="memory://bucket/one", **settings):
    out = Output(address, "a report", NAMES, **settings)
    with out.held():
        out.begin([*NAMES, "figures/a.png"])
        (out / "figures").mkdir(parents=True)
        for name in (*NAMES, "figures/a.png"):
            (out / name).write_text(name)
        out.finish()
    return out


def test_finished_files_lie_there_and_nothing_stays_here(memory):
    out = written()
    assert there(memory) == sorted([MARK, *NAMES, "figures/a.png"])
    assert memory.cat_file("/bucket/one/figures/a.png") == b"figures/a.png"
    assert json.loads(memory.cat_file(f"/bucket/one/{MARK}"))["finished"]
    assert not out.folder.exists()


def test_ours_is_replaced_only_on_demand_and_others_never(memory):
    written()
    memory.pipe_file("/bucket/one/notes.txt", b"mine")
    with pytest.raises(InputError, match=r"memory://bucket/one already holds a report\. Give another out=FOLDER"):
        Output("memory://bucket/one", "a report", NAMES)
    again = Output("memory://bucket/one", "a report", NAMES, overwrite=True)
    with again.held():
        again.begin(["index.html"])
        assert there(memory) == [MARK, "notes.txt"], "the files of the earlier one are gone"
        (again / "index.html").write_text("new")
        again.finish()
    assert memory.cat_file("/bucket/one/index.html") == b"new"
    memory.pipe_file("/bucket/two/index.html", b"mine")
    with pytest.raises(InputError, match=r"holds index.html, which vsehub did not write"):
        Output("memory://bucket/two", "a report", NAMES, overwrite=True)
    memory.pipe_file("/bucket/three/photo.jpg", b"mine")
    with pytest.raises(InputError, match=r"holds photo.jpg, which vsehub did not write"):
        Output("memory://bucket/three", "a report", NAMES)


def test_a_store_that_refuses(memory, monkeypatch):
    def refuse(*arguments, **settings):
        raise PermissionError("no such right")

    monkeypatch.setattr(type(memory), "pipe_file", refuse)
    with pytest.raises(InputError, match=r"out: memory://bucket/one cannot be written to \(PermissionError: no such"):
        Output("memory://bucket/one", "a report", NAMES)


def test_a_store_that_fails_at_the_end_is_reported(memory, monkeypatch):
    out = Output("memory://bucket/one", "a report", NAMES)

    def refuse(*arguments, **settings):
        raise ConnectionError("gone")

    def work():
        with out.held():
            out.begin(["index.html"])
            (out / "index.html").write_text("done")
            monkeypatch.setattr(type(memory), "put_file", refuse)
            out.finish()

    with pytest.raises(InputError, match="cannot be written to"):
        work()
    assert not json.loads(memory.cat_file(f"/bucket/one/{MARK}"))["finished"]


def test_a_scheme_that_nobody_knows():
    with pytest.raises(InputError, match=r"out: absent://a/b has the scheme 'absent', which fsspec does not know"):
        Output("absent://a/b", "a report", NAMES)
