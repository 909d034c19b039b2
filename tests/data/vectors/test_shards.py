"""Folders of shards, clip-retrieval's layout, and the same behind URIs."""

import io
import os

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data import open_vectors

CUTS = {0: (0, 5), 2: (5, 6), 9: (6, 17), 10: (17, 23)}  # number of the shard -> its rows
MATRIX = np.random.default_rng(0).normal(size=(23, 3)).astype(np.float32)
PATHS = [f"photos/{row:05d}.jpg" for row in range(23)]
CAPTIONS = [f"a dog, {row // 2}" for row in range(23)]


def write_parquet(path, array, **others):
    pq.write_table(pa.table({"v": list(array), **others}), path)


WRITERS = {".npy": np.save, ".parquet": write_parquet}


def folder(path, array, suffix=".npy", stem="e"):
    path.mkdir(parents=True)
    for number, (first, last) in CUTS.items():
        WRITERS[suffix](path / f"{stem}_{number}{suffix}", array[first:last])
    return path


def clip_retrieval(path, **columns):
    """The layout that clip-retrieval's inference writes. columns: of the metadata, with 23 entries each."""
    folder(path / "img_emb", MATRIX, stem="img_emb")
    folder(path / "text_emb", -MATRIX, stem="text_emb")
    (path / "metadata").mkdir()
    for number, (first, last) in CUTS.items():
        table = pa.table({name: entries[first:last] for name, entries in columns.items()})
        pq.write_table(table, path / "metadata" / f"metadata_{number}.parquet")
    return path


def refused(path, name):
    with pytest.raises(InputError, match=name):
        open_vectors(path)


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8])
@pytest.mark.parametrize("suffix", WRITERS)
def test_shards_are_one_matrix(tmp_path, suffix, dtype):
    array = (50 * MATRIX).astype(dtype)
    vectors = open_vectors(folder(tmp_path / "shards", array, suffix))
    expected = torch.from_numpy(array).float()
    for start, stop in ((0, 23), (0, 6), (4, 18), (6, 17), (22, 23), (9, 9)):
        assert torch.equal(vectors.rows(start, stop), expected[start:stop]), (start, stop)
    for indices in ([22, 0, 5, 5, 6, 16, 17], list(range(23))[::-1], []):
        assert torch.equal(vectors.take(indices), expected[indices])
    assert vectors.fingerprint() == open_vectors(array).fingerprint()


def test_ids_of_shards(tmp_path):
    (tmp_path / "s").mkdir()
    for number, names in enumerate((["c", "a"], ["b", "z"])):
        write_parquet(tmp_path / "s" / f"{number}.parquet", MATRIX[2 * number :][:2], id=names)
    assert open_vectors(tmp_path / "s").ids == ["c", "a", "b", "z"]
    assert torch.equal(open_vectors(f"{tmp_path}/s::v").rows(0, 4), torch.from_numpy(MATRIX[:4]))
    refused(f"{tmp_path}/s::w", "0.parquet")
    write_parquet(tmp_path / "s" / "2.parquet", MATRIX[4:6])
    refused(tmp_path / "s", "6 rows but 4 ids")


@pytest.mark.parametrize("name", ["readme.md", "e_3.parquet", "more", "narrow.npy", "other type.npy", "pipe.npy"])
def test_files_that_do_not_belong_to_shards(tmp_path, name):
    path = folder(tmp_path / "s", MATRIX) / name
    (tmp_path / "s" / "_SUCCESS").write_bytes(b"")
    assert len(open_vectors(tmp_path / "s")) == 23
    others = {"narrow.npy": MATRIX[:, :2], "other type.npy": MATRIX.astype(np.float64)}
    if name == "pipe.npy":
        os.mkfifo(path)
    elif name in others:
        np.save(path, others[name])
    elif name == "more":
        path.mkdir()
    else:
        path.write_bytes(b"x")
    refused(tmp_path / "s", name)


@pytest.mark.parametrize("path", ["s::v", "absent.npy", "absent", "empty"])
def test_paths_without_vectors(tmp_path, path):
    folder(tmp_path / "s", MATRIX)
    (tmp_path / "empty").mkdir()
    refused(f"{tmp_path}/{path}", str(tmp_path / path.partition("::")[0]))


def test_clip_retrieval(tmp_path):
    path = clip_retrieval(tmp_path / "out", image_path=PATHS, caption=CAPTIONS, similarity=[0.5] * 23)
    for side, expected in (("img_emb", MATRIX), ("text_emb", -MATRIX)):
        vectors = open_vectors(f"{path}::{side}")
        assert torch.equal(vectors.rows(0, 23), torch.from_numpy(expected))
        assert (vectors.ids, vectors.labels) == (PATHS, CAPTIONS)
        assert vectors.origin.path == f"{path}::{side}"
    refused(path, "img_emb")
    refused(f"{path}::audio_emb", "img_emb")
    pq.write_table(pa.table({"image_path": ["x"], "caption": ["x"]}), path / "metadata" / "metadata_9.parquet")
    refused(f"{path}::img_emb", "metadata_9.parquet")


@pytest.mark.parametrize(
    ("columns", "ids"),
    [
        ({"image_path": ["a"] * 23, "key": list(range(23)), "url": PATHS}, [str(row) for row in range(23)]),
        ({"key": [None, *range(22)], "url": PATHS}, PATHS),
        ({"key": ["a"] * 23}, None),
        ({"exif": PATHS}, None),
    ],
)
def test_ids_of_the_metadata(tmp_path, columns, ids):
    vectors = open_vectors(f"{clip_retrieval(tmp_path / 'out', **columns)}::img_emb")
    assert (vectors.ids, vectors.labels) == (ids, None)


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """An empty file system in memory, and an empty folder of caches."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    files = fsspec.filesystem("memory")
    files.store.clear()
    return files


def npy(array):
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def test_a_file_behind_a_uri_is_fetched_once_and_earlier_versions_go(memory, tmp_path):
    memory.pipe("/b/v.npy", npy(MATRIX))
    first = open_vectors("memory://b/v.npy")
    assert torch.equal(first.rows(0, 23), torch.from_numpy(MATRIX))
    assert first.origin.path == "memory://b/v.npy"
    assert open_vectors("memory://b/v.npy").origin.stamps == first.origin.stamps
    memory.pipe("/b/v.npy", npy(-MATRIX))  # of the same size
    assert torch.equal(open_vectors("memory://b/v.npy").rows(0, 23), torch.from_numpy(-MATRIX))
    assert len([*(tmp_path / "caches" / "vsehub" / "vectors").rglob("v.npy")]) == 1
    memory.pipe("/b/v.npy", b"x")
    refused("memory://b/v.npy", "v.npy")


def test_folders_behind_a_uri(memory, tmp_path):
    memory.put(str(clip_retrieval(tmp_path / "out", image_path=PATHS)), "/b/out", recursive=True)
    vectors = open_vectors("memory://b/out::text_emb")
    assert torch.equal(vectors.rows(0, 23), torch.from_numpy(-MATRIX))
    assert vectors.ids == PATHS


@pytest.mark.parametrize("name", ["/b/s/../../../e.npy", "/etc/e.npy", "../../e.npy"])
def test_names_of_a_listing_stay_in_the_folder(memory, monkeypatch, tmp_path, name):
    """A server may list what it likes: only the last part of a name counts."""
    memory.pipe("/b/s/e.npy", npy(MATRIX))
    monkeypatch.setattr(type(memory), "ls", lambda *_, **__: [name])
    (copy,) = open_vectors("memory://b/s").origin.stamps
    assert copy.name == "e.npy"
    assert copy.parent.parent.parent == tmp_path / "caches" / "vsehub" / "vectors"


@pytest.mark.parametrize("uri", ["nope://b/v.npy", "memory://b/v.pkl", "memory://b/absent.npy", "http://[::1/v.npy"])
def test_uris_that_will_not_do(memory, uri):
    with pytest.raises(InputError, match="items: "):
        open_vectors(uri, "items")
