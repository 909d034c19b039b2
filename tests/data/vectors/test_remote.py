"""Vectors behind URIs."""

import functools
import http.server
import io
import subprocess
import sys
import threading

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from fsspec.registry import known_implementations

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.vectors.paths import require_vectors


def matrix(rows=9):
    return np.random.default_rng(0).normal(size=(rows, 3)).astype(np.float32)


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty file system in memory, and an empty folder of caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    files = fsspec.filesystem("memory")
    files.store.clear()
    yield files
    files.store.clear()


def opened(files, monkeypatch):
    """The names of the remote files that are read from now on."""
    names = []
    own = type(files)._open

    def noted(self, path, mode="rb", **settings):
        if mode == "rb":
            names.append(path)
        return own(self, path, mode, **settings)

    monkeypatch.setattr(type(files), "_open", noted)
    return names


def refused(*arguments, **settings):
    with pytest.raises(InputError) as caught:
        open_vectors(*arguments, **settings)
    return str(caught.value)


def test_a_file_is_fetched_once(memory, monkeypatch):
    memory.pipe("/b/v.npy", npy(matrix()))
    read = opened(memory, monkeypatch)
    first = open_vectors("memory://b/v.npy")
    assert torch.equal(first.rows(0, 9), torch.from_numpy(matrix()))
    assert first.origin.path == "memory://b/v.npy"
    assert read == ["/b/v.npy"]
    assert open_vectors("memory://b/v.npy").origin.stamps == first.origin.stamps
    assert read == ["/b/v.npy"]
    (copy,) = first.origin.stamps
    copy.write_bytes(b"cut")
    assert len(open_vectors("memory://b/v.npy")) == 9
    memory.pipe("/b/v.npy", npy(-matrix()))  # of the same size
    assert torch.equal(open_vectors("memory://b/v.npy").rows(0, 9), torch.from_numpy(-matrix()))
    assert len(read) == 3


def test_an_array_of_several(memory):
    out = io.BytesIO()
    np.savez(out, image=matrix(), text=-matrix())
    memory.pipe("/b/v.npz", out.getvalue())
    assert torch.equal(open_vectors("memory://b/v.npz::text").rows(0, 9), torch.from_numpy(-matrix()))
    assert "2 matrices of floats" in refused("memory://b/v.npz")
    assert "(fetched from memory://b/v.npz)" in refused("memory://b/v.npz")


def test_a_folder_of_shards(memory, monkeypatch):
    for number, part in ((2, matrix()[:4]), (10, matrix()[4:])):
        memory.pipe(f"/b/s/e_{number}.npy", npy(part))
    memory.pipe("/b/s/_SUCCESS", b"")
    read = opened(memory, monkeypatch)
    for uri in ("memory://b/s", "memory://b/s/"):
        assert torch.equal(open_vectors(uri).rows(0, 9), torch.from_numpy(matrix()))
    assert len(read) == 4
    memory.pipe("/b/s/e_11.npy", npy(matrix()[:1]))
    assert len(open_vectors("memory://b/s")) == 10
    assert read[4:] == ["/b/s/e_11.npy"]
    memory.rm("/b/s/e_2.npy")
    assert len(open_vectors("memory://b/s")) == 6
    memory.pipe("/b/s/notes.txt", b"x")
    assert "more than shards of vectors: notes.txt" in refused("memory://b/s")
    assert len(read) == 5


def test_a_side_of_clip_retrieval(memory):
    table = io.BytesIO()
    pq.write_table(pa.table({"image_path": [f"{row}.jpg" for row in range(9)]}), table)
    memory.pipe("/b/out/img_emb/img_emb_0.npy", npy(matrix()))
    memory.pipe("/b/out/text_emb/text_emb_0.npy", npy(-matrix()))
    memory.pipe("/b/out/metadata/metadata_0.parquet", table.getvalue())
    given = open_vectors("memory://b/out::text_emb")
    assert torch.equal(given.rows(0, 9), torch.from_numpy(-matrix()))
    assert given.ids[8] == "8.jpg"
    assert "memory://b/out holds the vectors of img_emb and text_emb; name one" in refused("memory://b/out")


def test_a_copy_cut_short(memory, monkeypatch):
    """What came is not what the listing announced: nothing is kept."""
    memory.pipe("/b/v.npy", npy(matrix()))
    own = type(memory).info
    monkeypatch.setattr(type(memory), "info", lambda self, path, **_: own(self, path) | {"size": 10**6})
    assert "bytes of /b/v.npy came, 1000000 were announced" in refused("memory://b/v.npy")
    monkeypatch.setattr(type(memory), "info", own)
    assert len(open_vectors("memory://b/v.npy")) == 9


def test_names_of_a_listing_stay_in_the_folder(memory, monkeypatch, tmp_path):
    """A server may list what it likes: only the last part of a name counts."""
    memory.pipe("/b/s/e_0.npy", npy(matrix()))
    entry = memory.info("/b/s/e_0.npy")
    own = type(memory)._open
    monkeypatch.setattr(type(memory), "_open", lambda self, _, *arguments, **how: own(self, entry["name"], "rb"))
    for name in ("/b/s/../../../e.npy", "/etc/e.npy", "../../e.npy"):
        monkeypatch.setattr(type(memory), "ls", lambda *_, name=name, **__: [entry | {"name": name}])
        (copy,) = open_vectors("memory://b/s").origin.stamps
        assert copy.name == "e.npy"
        assert copy.parent.parent == tmp_path / "caches" / "vsehub" / "vectors"
    for name in ("/b/s/..", "/b/s/."):
        monkeypatch.setattr(type(memory), "ls", lambda *_, name=name, **__: [entry | {"name": name}])
        assert "is a folder without files" in refused("memory://b/s")


def test_uris_that_will_not_do(memory, monkeypatch):
    absent = {"class": "absent_library.FileSystem", "err": "Install it"}
    monkeypatch.setitem(known_implementations, "absent", absent)
    for uri, said in {
        "absent://b/v.npy": "items: the library for absent:// is not installed, so absent://b/v.npy cannot be opened. "
        "Install it: pip install absent-library",
        "absent://b/shards": "Install it: pip install absent-library",
        "nope://b/v.npy": "has the scheme 'nope', which fsspec does not know",
        "memory://b/v.pkl": "ends in '.pkl'; vectors are read from .npy",
        "simplecache::s3://b/v.npy": "chains several addresses; expected one",
        "zip://v.npy::s3://b/v.zip": "chains several addresses; expected one",
    }.items():
        with pytest.raises(InputError) as caught:
            open_vectors(uri, "items")
        assert said in str(caught.value), (uri, caught.value)
    assert "cannot be fetched (FileNotFoundError" in refused("memory://b/absent.npy")
    assert "cannot be fetched (FileNotFoundError" in refused("memory://b/absent")
    assert "names another machine; expected file:///" in refused("file://host/v.npy")


def test_the_door_fetches_nothing(memory, monkeypatch):
    read = opened(memory, monkeypatch)
    require_vectors("items", "memory://b/absent.npy")
    assert read == []
    code = "import sys, vsehub.data.vectors.embeddings; assert 'fsspec' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_files_of_this_machine_are_read_in_place(memory, tmp_path):
    np.save(tmp_path / "v.npy", matrix())
    given = open_vectors(f"file://{tmp_path}/v.npy")
    assert list(given.origin.stamps) == [tmp_path / "v.npy"]
    assert torch.equal(given.rows(0, 9), torch.from_numpy(matrix()))
    assert not (tmp_path / "caches").exists()


def test_a_web_address(memory, tmp_path):
    (tmp_path / "served").mkdir()
    np.save(tmp_path / "served" / "v.npy", matrix())
    serve = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path / "served"))
    serve.func.log_message = lambda *_: None
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        uri = f"http://127.0.0.1:{server.server_port}/v.npy"
        for given in (uri, f"{uri}?key=of/somebody.pt"):
            assert torch.equal(open_vectors(given).rows(0, 9), torch.from_numpy(matrix()))
        assert "cannot be fetched (FileNotFoundError" in refused(uri.replace("v.npy", "w.npy"))
        server.shutdown()


def test_rows_are_read_in_place(memory, tmp_path):
    """Of files that are not fetched only headers and the rows that are asked for are read; each file has an address."""
    arrays = [matrix(rows)[:, :3] + rows for rows in (1, 7, 3)]
    for number, array in enumerate(arrays):
        memory.pipe(f"/b/s/part_{number}.npy", npy(array))
    whole = torch.from_numpy(np.concatenate(arrays))
    for uri in ("memory://b/s", "memory://b/s/"):
        vectors = open_vectors(uri, fetched=False)
        assert vectors.shape == (11, 3)
        for start in range(12):
            for stop in range(start, 12):
                assert torch.equal(vectors.rows(start, stop), whole[start:stop])
        assert torch.equal(vectors.take([10, 0, 8, 7, 8]), whole[[10, 0, 8, 7, 8]])
        assert vectors.fingerprint() == open_vectors(whole).fingerprint()
        assert not (tmp_path / "caches").exists()
        assert vectors.origin.files == tuple((f"memory://b/s/part_{n}.npy", rows) for n, rows in enumerate((1, 7, 3)))
    one = open_vectors("memory://b/s/part_1.npy", fetched=False)
    assert one.origin.files == (("memory://b/s/part_1.npy", 7),)
    assert torch.equal(one.rows(2, 5), whole[3:6])
    assert not (tmp_path / "caches").exists()
    fetched = open_vectors("memory://b/s")
    assert fetched.origin.files == vectors.origin.files
    assert torch.equal(torch.cat([open_vectors(file).rows(0, rows) for file, rows in fetched.origin.files]), whole)

    memory.pipe("/b/s/part_2.npy", npy(matrix(3).astype(np.float16)))
    assert "part_2.npy holds rows of 3 float16 numbers" in refused("memory://b/s", fetched=False)
    memory.pipe("/b/s/part_2.npy", npy(np.array([[{}]])))
    assert "holds object" in refused("memory://b/s", fetched=False)
    memory.pipe("/b/s/part_2.npy", b"nothing")
    assert "cannot be fetched" in refused("memory://b/s", fetched=False)
    memory.pipe("/b/s/part_2.npy", npy(arrays[2])[:-4])
    short = open_vectors("memory://b/s", fetched=False)
    with pytest.raises(InputError, match=r"part_2\.npy is cut short: 8 of 12 bytes of its rows 2 to 2"):
        short.rows(10, 11)
