"""Folders of shards, and clip-retrieval's layout."""

import os
import resource
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.vectors.paths import natural
from vsehub.io import arrays

CUTS = {0: (0, 5), 2: (5, 6), 9: (6, 17), 10: (17, 23)}  # number of the shard -> its rows


def matrix(rows=23, dim=3, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(dtype)


def write_npy(path, array):
    """C order, Fortran order and the other byte order by turns."""
    number = int(path.stem.rpartition("_")[2])
    array = np.asfortranarray(array) if number == 9 else array
    np.save(path, array.astype(array.dtype.newbyteorder()) if number == 10 else array)


def write_parquet(path, array, **others):
    pq.write_table(pa.table({"v": list(array), **others}), path)


def folder(path, array, suffix=".npy", stem="e"):
    path.mkdir(parents=True)
    for number, (first, last) in CUTS.items():
        {".npy": write_npy, ".parquet": write_parquet}[suffix](path / f"{stem}_{number}{suffix}", array[first:last])
    return path


def refused(*arguments, **settings):
    with pytest.raises(InputError) as caught:
        open_vectors(*arguments, **settings)
    return str(caught.value)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint8])
@pytest.mark.parametrize(("suffix", "mapped"), [(".npy", 32), (".npy", 2), (".parquet", 32)])
def test_shards_are_one_matrix(tmp_path, monkeypatch, suffix, mapped, dtype):
    monkeypatch.setattr(arrays, "_STAY_MAPPED", mapped)
    array = (50 * matrix()).astype(dtype) if np.dtype(dtype).kind != "u" else (abs(50 * matrix())).astype(dtype)
    given = open_vectors(folder(tmp_path / "shards", array, suffix))
    expected = torch.from_numpy(array).float()
    assert given.shape == (23, 3)
    assert str(given.dtype) == f"torch.{np.dtype(dtype).name}"
    for start in range(24):
        for stop in range(start, 24):
            assert torch.equal(given.rows(start, stop), expected[start:stop]), (start, stop)
    for indices in ([22, 0, 5, 5, 6, 16, 17], [4], list(range(23))[::-1], []):
        assert torch.equal(given.take(indices), expected[indices])
    assert torch.equal(torch.cat([block for _, block in given.blocks(4)]), expected)
    one = tmp_path / "one.npy"
    np.save(one, array)
    assert given.fingerprint() == open_vectors(one).fingerprint()
    assert [path.name for path in given.origin.stamps] == [f"e_{number}{suffix}" for number in CUTS]
    normal = open_vectors(tmp_path / "shards", normalize=True).rows(0, 23)
    assert torch.equal(normal, open_vectors(one, normalize=True).rows(0, 23))


def test_natural_order():
    ordered = ["7", "10", "a", "a9", "a10b2", "a10b10", "b", "b_01", "b_1", "b_2", "b_10", "b_²"]
    assert sorted(ordered[::-1], key=natural) == sorted(sorted(ordered), key=natural) == ordered


def test_ids_of_shards(tmp_path):
    (tmp_path / "s").mkdir()
    array = matrix(6)
    for number, names in enumerate((["c", "a"], ["b", "z"])):
        write_parquet(tmp_path / "s" / f"{number}.parquet", array[2 * number :][:2], id=names)
    assert open_vectors(tmp_path / "s").ids == ["c", "a", "b", "z"]
    assert torch.equal(open_vectors(f"{tmp_path}/s::v").rows(0, 4), torch.from_numpy(array[:4]))
    assert "has no array 'w'" in refused(f"{tmp_path}/s::w")
    write_parquet(tmp_path / "s" / "2.parquet", array[4:], id=["q", "a"])
    assert "'a' comes twice, as number 1 and 5" in refused(tmp_path / "s")
    write_parquet(tmp_path / "s" / "2.parquet", array[4:])
    assert "2.parquet of " in refused(tmp_path / "s")
    assert "have no ids, other shards do" in refused(tmp_path / "s")


def test_folders_that_will_not_do(tmp_path):
    shards = folder(tmp_path / "s", matrix())
    (tmp_path / "empty").mkdir()
    assert "empty is a folder without files; expected shards" in refused(tmp_path / "empty")
    for hidden in (".DS_Store", "_SUCCESS", ".e_3.npy.crc"):
        (shards / hidden).write_bytes(b"")
        (tmp_path / "empty" / hidden).write_bytes(b"")
    assert len(open_vectors(shards)) == 23
    assert "without files" in refused(tmp_path / "empty")
    for other in ("readme.md", "e_3.npy.tmp", "e_3.npz"):
        (shards / other).write_bytes(b"x")
        assert f"holds more than shards of vectors: {other}. Give one of its files" in refused(shards, "items")
        (shards / other).unlink()
    (shards / "more").mkdir()
    assert "holds more than shards of vectors: more" in refused(shards)
    (shards / "more").rmdir()
    write_parquet(shards / "e_3.parquet", matrix(2))
    assert "holds shards of two kinds, 4 .npy and 1 .parquet; expected one kind" in refused(shards)
    (shards / "e_3.parquet").unlink()
    assert "e_0.npy is one array without a name; remove '::v'" in refused(f"{shards}::v")


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_shards_that_differ(tmp_path, suffix):
    shards = folder(tmp_path / "s", matrix(), suffix)
    write = {".npy": np.save, ".parquet": write_parquet}[suffix]
    for other, said in (
        (matrix(2, 4), "e_3.* holds rows of 4 float32 numbers, but .*e_0.* of 3 float32 numbers"),
        (matrix(2, 3, np.float16), "e_3.* holds rows of 3 float16 numbers, but .*e_0.* of 3 float32 numbers"),
    ):
        write(shards / f"e_3{suffix}", other)
        for skip in (False, True):  # a shard that can be read is never left out
            with pytest.raises(InputError, match=said):
                open_vectors(shards, skip_unreadable=skip)


@pytest.mark.parametrize("suffix", [".npy", ".parquet"])
def test_an_unreadable_shard(tmp_path, suffix, caplog):
    array = matrix()
    shards = folder(tmp_path / "s", array, suffix)
    damaged = shards / f"e_9{suffix}"
    for content in (b"", b"x", damaged.read_bytes()[:-7]):
        damaged.write_bytes(content)
        assert str(damaged) in refused(shards)
        caplog.clear()
        given = open_vectors(shards, skip_unreadable=True)
        assert [path.name for path in given.origin.left_out] == [f"e_9{suffix}"]
        assert f"{damaged} is left out, with all its rows" in caplog.text
        assert torch.equal(given.rows(0, 12), torch.from_numpy(np.delete(array, np.s_[6:17], 0)))
    for path in shards.iterdir():
        path.write_bytes(b"x")
    assert "none of its 4 shards can be read" in refused(shards, skip_unreadable=True)


def test_no_pickles(tmp_path):
    shards = folder(tmp_path / "s", matrix())
    np.save(shards / "e_3.npy", np.array([[print, 1]], object))
    assert "e_3.npy holds object; expected one of float16" in refused(shards)


def test_a_shard_that_changes_while_it_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(arrays, "_STAY_MAPPED", 2)
    shards = folder(tmp_path / "s", matrix())
    given = open_vectors(shards)
    (shards / "e_9.npy").write_bytes(b"short")
    assert torch.equal(given.rows(0, 6), torch.from_numpy(matrix()[:6]))
    for read in (lambda: given.rows(0, 23), lambda: given.take([8])):
        with pytest.raises(InputError, match=r"e_9.npy was changed or removed while it was read"):
            read()


def test_more_shards_than_file_handles(tmp_path):
    """A map takes a file handle until it is closed, and systems allow 1,024 or 256 of them."""
    (tmp_path / "s").mkdir()
    array = matrix(400)
    for row in range(200):
        np.save(tmp_path / "s" / f"{row}.npy", array[row : row + 1])
    for row in range(200, 400):
        (tmp_path / "p").mkdir(exist_ok=True)
        write_parquet(tmp_path / "p" / f"{row}.parquet", array[row : row + 1])
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    opened = len(os.listdir("/proc/self/fd"))
    resource.setrlimit(resource.RLIMIT_NOFILE, (opened + 60, before[1]))
    try:
        for name, expected in (("s", array[:200]), ("p", array[200:])):
            given = open_vectors(tmp_path / name)
            assert torch.equal(given.rows(0, 200), torch.from_numpy(expected))
            assert torch.equal(given.take(list(range(199, -1, -1))), torch.from_numpy(expected[::-1].copy()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_memory_stays_bounded(tmp_path):
    array = np.random.default_rng(0).random((10_000, 256), np.float32)
    for suffix in ("npy", "parquet"):
        (tmp_path / suffix).mkdir()
        for number in range(8):
            path = tmp_path / suffix / f"{number}.{suffix}"
            if suffix == "npy":
                np.save(path, array)
            else:
                fixed = pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), 256)
                pq.write_table(pa.table({"v": fixed}), path, use_dictionary=False)
    code = """
import sys
import pyarrow.parquet, torch
from vsehub.data.vectors import parquet
from vsehub.data import open_vectors

def held():
    return next(int(line.split()[1]) // 1024 for line in open("/proc/self/status") if line.startswith("RssAnon"))

parquet._BATCH_BYTES = 1 << 20
open_vectors(torch.rand(20000, 256), normalize=True).rows(0, 20000)
for path in sys.argv[1:]:
    before = held()
    print(max(held() - before for _ in open_vectors(path, normalize=True).blocks(2000)))
"""
    ask = [sys.executable, "-c", code, str(tmp_path / "npy"), str(tmp_path / "parquet")]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    mapped_mb, unpacked_mb = map(int, done.stdout.split())
    assert mapped_mb < 20
    assert unpacked_mb < 60


def clip_retrieval(path, **columns):
    """The layout that clip-retrieval's inference writes. columns: of the metadata, with 23 entries each."""
    array = matrix()
    folder(path / "img_emb", array, stem="img_emb")
    folder(path / "text_emb", -array, stem="text_emb")
    (path / "metadata").mkdir()
    for number, (first, last) in CUTS.items():
        own = pa.table({name: entries[first:last] for name, entries in columns.items()})
        pq.write_table(own, path / "metadata" / f"metadata_{number}.parquet")
    (path / "stats_0.json").write_text("{}")
    return path


PATHS = [f"photos/{row:05d}.jpg" for row in range(23)]
CAPTIONS = [f"a dog, {row // 2}" for row in range(23)]


def test_clip_retrieval(tmp_path):
    path = clip_retrieval(tmp_path / "out", image_path=PATHS, caption=CAPTIONS, similarity=[0.5] * 23)
    for side, expected in (("img_emb", matrix()), ("text_emb", -matrix())):
        given = open_vectors(f"{path}::{side}")
        assert torch.equal(given.rows(0, 23), torch.from_numpy(expected))
        assert given.ids == PATHS
        assert given.labels == CAPTIONS
        assert given.origin.path == f"{path}::{side}"
        assert {file.parent.name for file in given.origin.stamps} == {side, "metadata"}
        plain = open_vectors(path / side)
        assert plain.ids is None
        assert plain.labels is None
        assert torch.equal(plain.rows(0, 23), given.rows(0, 23))
    several = f"holds the vectors of img_emb and text_emb; name one side after two colons, as in {path}::img_emb"
    assert several in refused(path)
    for outside in ("metadata", "..", "../out/img_emb", f"{path}/img_emb", ""):
        assert f"has no folder {outside!r}; there are img_emb, text_emb" in refused(path, key=outside)


def test_ids_of_clip_retrieval(tmp_path, caplog):
    whole = {"key": [str(row) for row in range(23)], "url": [f"https://h/{row}" for row in range(23)]}
    twice = ["same"] * 2 + PATHS[2:]
    holes = [None, *PATHS[1:]]
    for number, (columns, expected) in enumerate(
        [
            ({"image_path": twice, **whole}, whole["key"]),
            ({"image_path": holes, "url": whole["url"]}, whole["url"]),
            ({"image_path": list(range(23))}, [str(row) for row in range(23)]),
            ({"image_path": twice}, None),
            ({"caption": CAPTIONS}, None),
        ]
    ):
        caplog.clear()
        given = open_vectors(f"{clip_retrieval(tmp_path / str(number), **columns)}::text_emb")
        assert given.ids == expected
        assert (given.labels is None) == ("caption" not in columns)
        assert ("has a different entry in each row: the rows have no ids" in caplog.text) == (expected is None)


def test_metadata_that_does_not_fit(tmp_path):
    path = clip_retrieval(tmp_path / "out", image_path=PATHS)
    given, second = f"{path}::img_emb", path / "metadata" / "metadata_2.parquet"
    whole = second.read_bytes()
    pq.write_table(pa.table({"image_path": ["a", "b"]}), second)
    assert f"img_emb_2.npy has 1 rows, but its metadata {second} 2" in refused(given)
    left = open_vectors(given, skip_unreadable=True)
    assert left.ids == PATHS[:5] + PATHS[6:]
    assert torch.equal(left.rows(0, 22), torch.from_numpy(np.delete(matrix(), 5, 0)))
    second.write_bytes(whole[:-9])
    assert f"{second} cannot be read as .parquet" in refused(given)
    pq.write_table(pa.table({"similarity": [0.5]}), second)
    assert f"{second} has none of the columns image_path, key, url, caption" in refused(given)
    second.unlink()
    assert f"no such file or folder: {second}. It describes the rows of " in refused(given)
    for file in (path / "metadata").iterdir():
        file.unlink()
    (path / "metadata").rmdir()
    assert open_vectors(given).ids is None
