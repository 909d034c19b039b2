import io
import json
import os
import re
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.vectors import embeddings as vectors
from vsehub.data.vectors import parquet as stored_parquet

IDS = [f"név {row}" for row in range(7)]


def matrix(rows=7, dim=3, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(rows, dim)).astype(dtype)


def fixed(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def table(columns, path, **settings):
    pq.write_table(pa.table(columns), path, **settings)


def write_npz(path, array, **others):
    np.savez(path, vectors=array, **others)


WRITERS = {
    "plain.npy": lambda path, array: np.save(path, array),
    "fortran.npy": lambda path, array: np.save(path, np.asfortranarray(array)),
    "swapped.NPY": lambda path, array: np.save(path.open("wb"), array.astype(array.dtype.newbyteorder())),
    "stored.npz": write_npz,
    "stored_fortran.npz": lambda path, array: np.savez(path, np.asfortranarray(array)),
    "packed.npz": lambda path, array: np.savez_compressed(path, array),
    "packed_fortran.npz": lambda path, array: np.savez_compressed(path, np.asfortranarray(array)),
    "plain.safetensors": lambda path, array: save_file({"vectors": array}, path),
    "fixed.parquet": lambda path, array: table({"v": fixed(array)}, path, row_group_size=3),
    "tensor.parquet": lambda path, array: table({"v": pa.FixedShapeTensorArray.from_numpy_ndarray(array)}, path),
    "lists.parquet": lambda path, array: table({"v": pa.array(list(array))}, path, row_group_size=2),
    "large_lists.parquet": lambda path, array: table(
        {"v": pa.array(list(array), pa.large_list(pa.from_numpy_dtype(array.dtype)))}, path
    ),
    "columns.parquet": lambda path, array: table(
        {f"d{column}": array[:, column] for column in range(array.shape[1])}, path, row_group_size=4
    ),
}
IN_PLACE = ("plain.npy", "fortran.npy", "swapped.NPY", "stored.npz", "stored_fortran.npz", "plain.safetensors")


@pytest.fixture(autouse=True)
def small_steps(monkeypatch):
    """Blocks, batches and groups of columns that are smaller than the files of these tests."""
    monkeypatch.setattr(vectors, "_BLOCK_BYTES", 2 * 3 * 4)
    monkeypatch.setattr(stored_parquet, "_BATCH_BYTES", 60)
    monkeypatch.setattr(stored_parquet, "_TOGETHER", 2)


def written(tmp_path, name, array):
    path = tmp_path / name
    WRITERS[name](path, array)
    return path


def refused(action, *arguments, **settings):
    with pytest.raises(InputError) as caught:
        action(*arguments, **settings)
    return str(caught.value)


def mapped(array):
    """The path of the file that the array reads from, through any number of views; None for one in memory."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return getattr(array, "filename", None) or type(array.base).__name__


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", WRITERS)
def test_formats(tmp_path, name, dtype):
    array = matrix(dtype=dtype)
    path = written(tmp_path, name, array)
    given = open_vectors(path)
    expected = torch.from_numpy(array).float()
    assert given.shape == (7, 3)
    assert len(given) == 7
    assert str(given.dtype) == f"torch.{np.dtype(dtype).name}"
    assert given.ids is None
    assert mapped(given.source) != "NoneType", "it lies in memory"
    if name in IN_PLACE:
        assert str(mapped(given.source)) in (str(path), "mmap")
    for start, stop in ((0, 7), (2, 5), (6, 7), (3, 3)):
        rows = given.rows(start, stop)
        assert rows.dtype == torch.float32
        assert rows.is_contiguous()
        assert torch.equal(rows, expected[start:stop])
    assert torch.equal(given.take([5, 0, 0, 6]), expected[[5, 0, 0, 6]])
    firsts, blocks = zip(*given.blocks(), strict=True)
    assert firsts == (0, 2, 4, 6)
    assert torch.equal(torch.cat(blocks), expected)
    assert given.fingerprint() == open_vectors(array).fingerprint()


def test_bfloat16(tmp_path):
    tensor = torch.from_numpy(matrix()).bfloat16()
    save_torch({"v": tensor}, tmp_path / "v.safetensors")
    for given in (open_vectors(tmp_path / "v.safetensors"), open_vectors(tensor)):
        assert given.dtype == torch.bfloat16
        assert torch.equal(given.rows(1, 6), tensor[1:6].float())
        assert torch.equal(given.take(torch.tensor([6, 1])), tensor[[6, 1]].float())


@pytest.mark.parametrize("make", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_what_is_given_out_is_a_copy(make):
    array = matrix()
    before = array.copy()
    for source in (array, array.T.copy().T):
        for normalize in (True, False):
            given = open_vectors(make(source), normalize=normalize)
            given.rows(0, 7).zero_()
            given.take([1, 2]).zero_()
            assert np.array_equal(source, before)
    parameter = open_vectors(torch.nn.Parameter(torch.from_numpy(array)))
    assert not parameter.rows(0, 2).requires_grad


def test_rows_that_are_not_there():
    given = open_vectors(matrix(), name="items")
    for start, stop in ((0, 8), (-1, 3), (4, 3)):
        assert f"rows {start} to {stop} of items" in refused(given.rows, start, stop)
    for indices in ([0, 7], [-1], [[0]], [0.5], torch.ones(7, dtype=torch.bool)):
        assert re.search(
            "items were asked for by torch.* expected a list of whole .* 0 to 6", refused(given.take, indices)
        )
    assert given.take([]).shape == (0, 3)


def test_a_matrix_of_several_is_named(tmp_path):
    arrays = {"images": matrix(), "texts": -matrix(), "words": np.zeros((7, 3), np.int64), "scale": np.ones(3)}
    np.savez(tmp_path / "v.npz", **arrays)
    save_file(arrays, tmp_path / "v.safetensors")
    table({"images": fixed(matrix()), "texts": fixed(-matrix()), "caption": IDS}, tmp_path / "v.parquet")
    for ending in ("npz", "safetensors", "parquet"):
        path = tmp_path / f"v.{ending}"
        for given in (open_vectors(f"{path}::texts"), open_vectors(path, key="texts")):
            assert torch.equal(given.rows(0, 7), torch.from_numpy(-matrix()))
            assert given.origin.path == f"{path}::texts"
        message = refused(open_vectors, path)
        assert f"2 matrices of floats; expected one, or its name after two colons, as in v.{ending}::images" in message
        assert "texts (7, " in message
        assert f"has no array 'text'; {'arrays' if ending else ''} there: images" in refused(
            open_vectors, f"{path}::text"
        )
    assert "words holds int64; expected one of float16" in refused(open_vectors, f"{tmp_path}/v.npz::words")
    assert "give one" in refused(open_vectors, f"{tmp_path}/v.npz::images", key="texts")
    np.savez(tmp_path / "one.npz", **{name: arrays[name] for name in ("images", "words", "scale")})
    assert torch.equal(open_vectors(tmp_path / "one.npz").rows(0, 7), torch.from_numpy(matrix()))


def test_a_name_with_colons(tmp_path):
    np.save(tmp_path / "a::b.npy", matrix())
    assert len(open_vectors(tmp_path / "a::b.npy")) == 7
    np.save(tmp_path / "a.npy", matrix())
    assert "is one array without a name; remove '::b'" in refused(open_vectors, tmp_path / "a.npy::b")


@pytest.mark.parametrize("ids", [IDS, [40 - row for row in range(7)]])
def test_ids(tmp_path, ids):
    write_npz(tmp_path / "v.npz", matrix(), ids=np.array(ids))
    write_npz(tmp_path / "bytes.npz", matrix(), ids=np.array([str(one).encode() for one in ids]))
    table({"id": ids, "v": fixed(matrix())}, tmp_path / "v.parquet")
    table({"d0": matrix()[:, 0], "id": pa.array(ids).dictionary_encode(), "note": IDS}, tmp_path / "columns.parquet")
    for path in tmp_path.iterdir():
        assert open_vectors(path).ids == [str(one) for one in ids]
    named = open_vectors(matrix()).with_ids([str(one) for one in ids])
    assert open_vectors(tmp_path / "v.npz").fingerprint() == named.fingerprint() != open_vectors(matrix()).fingerprint()
    assert "queries has 7 rows but 6 ids" in refused(named.with_ids, IDS[1:])


@pytest.mark.parametrize(
    ("ids", "message"),
    [
        (IDS[:-1], "has 7 rows but 6 ids; expected one id per row"),
        ([*IDS[:-1], IDS[1]], r"'név 1' comes twice, as number 1 and 6, counted from 0 \(1 repeats in all\)"),
        (np.ones(7), "expected one string or whole number per row"),
        (np.array(IDS, object), r"v.npz::ids is object \(7,\); expected one string .*: ids.astype"),
    ],
)
def test_bad_ids_of_npz(tmp_path, ids, message):
    write_npz(tmp_path / "v.npz", matrix(), ids=ids)
    assert re.search(message, refused(open_vectors, tmp_path / "v.npz"))


@pytest.mark.parametrize("code", [0xD800, 0xDFFF, 0x110000, 2**32 - 1])
@pytest.mark.parametrize("order", ["<", ">"])
def test_ids_that_are_no_text(tmp_path, code, order):
    """Numbers where characters should be: Python cannot make strings of them, or no file can take them."""
    codes = np.full((7, 3), 97, f"{order}u4") + np.arange(7, dtype=f"{order}u4")[:, None]
    write_npz(tmp_path / "v.npz", matrix(), ids=codes.astype(f"{order}u4").view(f"{order}U3")[:, 0])
    assert open_vectors(tmp_path / "v.npz").ids[:2] == ["aaa", "bbb"]
    codes[3, 1] = code
    write_npz(tmp_path / "v.npz", matrix(), ids=codes.astype(f"{order}u4").view(f"{order}U3")[:, 0])
    assert "v.npz::ids holds numbers that are not characters" in refused(open_vectors, tmp_path / "v.npz")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"id": [0.5] * 7, "v": fixed(matrix())}, "the column id holds double; expected strings or whole numbers"),
        ({"id": [*IDS[:5], None, None], "v": fixed(matrix())}, "rows 5, 6, counted from 0, have no id"),
        ({"id": [*IDS[:6], IDS[0]], "v": fixed(matrix())}, "'név 0' comes twice, as number 0 and 6"),
        ({"v": [[1.0, 2.0], [1.0], None, [1.0, None], [], [2.0, 3.0, 4.0], [5.0, 6.0]]}, None),
        (
            {"v": pa.array([[1.0, 2.0], None, [3.0, None]], pa.list_(pa.float32(), 2))},
            "row 1 has no list; row 2 lacks a number",
        ),
        ({"v": pa.array([[], [1.0]])}, "begins with a row without numbers; expected a list of floats in every row"),
        ({"v": [[1, 2], [3, 4]]}, "0 matrices of floats; .* Arrays there: v .* int64"),
        ({"a": [1.0, None, 2.0, None], "b": [1.0, 2.0, 3.0, None]}, "rows, counted from 0: rows 1, 3 lack a number"),
        ({"a": [1.0, 2.0], "b": [1, 2]}, "the columns b .1 in all. hold whole numbers among 1 columns of floats"),
        ({"caption": IDS}, r"no column of floats or of lists of floats; columns there: caption \(string\)"),
        ({"v": pa.array([], pa.list_(pa.float32()))}, "has no rows"),
    ],
)
def test_bad_parquet(tmp_path, columns, message):
    table(columns, tmp_path / "v.parquet")
    if message is None:
        message = "has 2 numbers: .* row 2 has no list; rows 1, 4, 5 have another length; row 3 lacks a number"
    assert re.search(message, refused(open_vectors, tmp_path / "v.parquet"))


def test_columns_of_several_widths(tmp_path):
    columns = {"__index_level_0__": [9, 8], "a": np.float16([1, 2]), "b": np.float64([3, 4]), "c": np.float32([5, 6])}
    table(columns, tmp_path / "v.parquet")
    given = open_vectors(tmp_path / "v.parquet")
    assert given.dtype == torch.float64
    assert given.rows(0, 2).tolist() == [[1, 3, 5], [2, 4, 6]]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.ones((2, 3), np.int64),
            "holds int64; expected one of float16, bfloat16, float32, float64, int8, uint8. Con",
        ),
        (np.ones((2, 3), bool), "holds bool"),
        (np.ones(4, np.float32), r"has shape \(4,\); expected \(rows, dim\)"),
        (np.ones((2, 3, 4), np.float32), r"has shape \(2, 3, 4\)"),
        (np.ones((0, 4), np.float32), r"has shape \(0, 4\)"),
        (np.ones((4, 0), np.float32), r"has shape \(4, 0\)"),
        (np.array([[1.0, None]], object), "holds object"),
    ],
)
def test_bad_arrays(tmp_path, array, message):
    np.save(tmp_path / "v.npy", array)
    np.savez(tmp_path / "v.npz", v=array)
    for given in (array, tmp_path / "v.npy", f"{tmp_path}/v.npz::v"):
        assert re.search(message, refused(open_vectors, given))


@pytest.mark.parametrize("name", WRITERS)
def test_files_cut_short_or_damaged(tmp_path, name):
    path = written(tmp_path, name, matrix(200, 3))
    whole = path.read_bytes()
    for keep in (1, 4, 9, 60, 200, len(whole) // 2, len(whole) - 1):
        path.write_bytes(whole[:keep])
        message = refused(open_vectors, path)
        assert re.search(rf"{path} (cannot be read as {path.suffix} \(.|is cut short: )", message), message
    path.write_bytes(b"version https://git-lfs.github.com/spec/v1\n")
    assert f"{path} cannot be read as {path.suffix} (" in refused(open_vectors, path)
    path.write_bytes(b"")
    assert f"{path} is empty (0 bytes)" in refused(open_vectors, path)


def test_damage_within(tmp_path):
    """Zeros over bytes in the middle of what carries checksums."""
    packed = written(tmp_path, "packed.npz", matrix(500))
    table({"v": fixed(matrix(500))}, tmp_path / "v.parquet", write_page_checksum=True)
    for path in (packed, tmp_path / "v.parquet"):
        data = bytearray(path.read_bytes())
        data[2000:2500] = bytes(500)
        path.write_bytes(data)
        assert f"{path} cannot be read as {path.suffix} (" in refused(open_vectors, path)


def test_a_member_cut_short_in_a_whole_archive(tmp_path):
    """The header of an uncompressed member says more rows than the member has: the next member's are not taken."""
    whole = io.BytesIO()
    np.save(whole, matrix(7))
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as archive:
        archive.writestr("v.npy", whole.getvalue()[:-12])
        archive.writestr("other.npy", whole.getvalue())
    message = refused(open_vectors, f"{tmp_path}/v.npz::v")
    assert "v.npz is cut short: (7, 3) float32 numbers take 84 bytes, 72 are there" in message
    assert len(open_vectors(f"{tmp_path}/v.npz::other")) == 7


def test_the_checksum_of_a_packed_member(tmp_path):
    """Random bytes are deflated as they are: one that is flipped shows in the checksum alone."""
    path = tmp_path / "v.npz"
    np.savez_compressed(path, np.frombuffer(np.random.default_rng(0).bytes(24000), np.float32).reshape(-1, 3))
    data = bytearray(path.read_bytes())
    data[12000] ^= 1
    path.write_bytes(data)
    assert "v.npz cannot be read as .npz (Bad CRC-32" in refused(open_vectors, path)


def test_a_header_with_a_truth_value(tmp_path):
    path = tmp_path / "v.npy"
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, {"descr": "<f4", "fortran_order": False, "shape": (True, 320)})
        file.write(bytes(1280))
    assert "v.npy" in refused(open_vectors, path)


def test_paths_that_will_not_do(tmp_path):
    assert "items: no such file or folder: " in refused(open_vectors, tmp_path / "absent.npy", name="items")
    assert f"items: {tmp_path} is a folder without files; expected shards" in refused(open_vectors, tmp_path, "items")
    (tmp_path / "v.pkl").write_bytes(b"x")
    assert "ends in '.pkl'; vectors are read from .npy" in refused(open_vectors, tmp_path / "v.pkl")
    for given in ("no", "false", 0, 1, 1.0):
        assert f"normalize is {given!r}; expected true, false or null" in refused(
            open_vectors, matrix(), normalize=given
        )
    assert "a key chooses among the arrays of a file" in refused(open_vectors, matrix(), key="v")


@pytest.mark.parametrize("name", ["packed.npz", "lists.parquet", "columns.parquet"])
def test_a_full_temporary_folder(tmp_path, monkeypatch, name):
    path = written(tmp_path, name, matrix())

    def full(descriptor, offset, length):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", full)
    if name == "lists.parquet":  # its rows are written as they are found
        monkeypatch.setattr("tempfile.TemporaryFile", lambda **_: os.fdopen(os.open("/dev/full", os.O_RDWR), "r+b", 0))
    assert re.search(
        "temporary folder .*No space left on device.. Free room there, set TMPDIR", refused(open_vectors, path)
    )


@pytest.mark.parametrize("reserves", [True, False], ids=["reserved", "a system that cannot reserve"])
def test_unpacking_leaves_nothing_behind(tmp_path, monkeypatch, reserves):
    if not reserves:
        monkeypatch.delattr("os.posix_fallocate")
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    given = [open_vectors(written(tmp_path, name, matrix())) for name in ("packed.npz", "lists.parquet")]
    assert list(folder.iterdir()) == []
    assert all(torch.equal(one.rows(0, 7), torch.from_numpy(matrix())) for one in given)


def claimed(path, shape, save):
    """A file that claims a matrix of `shape` and holds hardly anything."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": shape})
    content = content.getvalue() + bytes(1200)
    if path.suffix == ".npy":
        path.write_bytes(content)
        return
    if path.suffix == ".npz":
        with zipfile.ZipFile(path, "w", save) as archive:
            archive.writestr("v.npy", content)
            ids = io.BytesIO()
            np.lib.format.write_array_header_1_0(ids, {"descr": "<U9", "fortran_order": False, "shape": shape[:1]})
            archive.writestr("ids.npy", ids.getvalue())
        return
    header = json.dumps({"v": {"dtype": "F32", "shape": shape, "data_offsets": [0, 4 * shape[0] * shape[1]]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(1200))


@pytest.mark.parametrize("shape", [(10**12, 3), (2**62, 4), (2**40, 2**40), (-1, 3), (3, 2**63)])
@pytest.mark.parametrize("name", ["v.npy", "stored.npz", "packed.npz", "v.safetensors"])
def test_a_header_that_claims_more_than_the_file_holds(tmp_path, monkeypatch, name, shape):
    def reserved(*arguments):
        raise AssertionError("room was made for what is not there")

    monkeypatch.setattr("os.posix_fallocate", reserved)
    claimed(tmp_path / name, shape, zipfile.ZIP_DEFLATED if name[0] == "p" else zipfile.ZIP_STORED)
    message = refused(open_vectors, tmp_path / name)
    assert re.search("is cut short: |cannot be read as |has shape", message), message


def test_ids_that_claim_more_than_the_file_holds(tmp_path):
    content, ids = io.BytesIO(), io.BytesIO()
    np.save(content, matrix())
    np.lib.format.write_array_header_1_0(ids, {"descr": "<U9", "fortran_order": False, "shape": (10**12,)})
    for save in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        with zipfile.ZipFile(tmp_path / "v.npz", "w", save) as archive:
            archive.writestr("v.npy", content.getvalue())
            archive.writestr("ids.npy", ids.getvalue())
        assert r"is cut short: (1000000000000,) str288 numbers take" in refused(open_vectors, tmp_path / "v.npz")


def number_of_thrift(value):
    """A positive number as the footer of a .parquet writes its 64-bit numbers: zigzag, seven bits a byte."""
    value, parts = 2 * value, []
    while value > 127:
        parts.append(value & 127 | 128)
        value >>= 7
    return b"\x16" + bytes([*parts, value])


@pytest.mark.parametrize("rows", [10**12, 2**62, 2000, 1000])
@pytest.mark.parametrize("name", ["fixed.parquet", "lists.parquet", "columns.parquet"])
@pytest.mark.parametrize("places", [1, -1], ids=["the file's", "the row groups' too"])
def test_a_parquet_that_claims_other_rows_than_it_has(tmp_path, name, rows, places):
    array = matrix(1234)
    columns = {
        "fixed.parquet": {"v": fixed(array)},
        "lists.parquet": {"v": pa.array(list(array))},
        "columns.parquet": {f"d{column}": array[:, column] for column in range(3)},
    }[name]
    path = tmp_path / name
    table(columns, path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    whole = data[-8 - length : -8]
    footer = whole.replace(number_of_thrift(1234), number_of_thrift(rows), places)
    assert footer != whole
    path.write_bytes(data[: -8 - length] + footer + len(footer).to_bytes(4, "little") + data[-4:])
    if rows < 1234 and places == -1:
        assert torch.equal(open_vectors(path).rows(0, rows), torch.from_numpy(array[:rows]))
    else:
        assert f"says that it has {rows} rows, but 1234 are there" in refused(open_vectors, path)


def test_a_safetensors_file_beyond_the_memory(tmp_path):
    """A hundred gigabytes of holes: opened and read at the end, since it is mapped for reading alone."""
    rows = 50_000_000
    header = b'{"v":{"dtype":"F32","shape":[%d,512],"data_offsets":[0,%d]}}' % (rows, rows * 2048)
    with (tmp_path / "v.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        try:
            file.truncate(8 + len(header) + rows * 2048)
        except OSError:
            pytest.skip("this file system takes no sparse file of that size")
    given = open_vectors(tmp_path / "v.safetensors")
    assert given.rows(rows - 1, rows).count_nonzero() == 0


def test_imports_stay_light_and_memory_bounded(tmp_path):
    """80 MB of vectors pass through a process that holds a part of them at a time, Arrow's pages the most of it."""
    array = np.random.default_rng(0).random((80_000, 256), np.float32)
    np.save(tmp_path / "v.npy", array)
    table({"v": fixed(array)}, tmp_path / "v.parquet", row_group_size=len(array), use_dictionary=False)
    code = """
import sys
import vsehub.rerank.table, vsehub.data.truth, vsehub.data.vectors.embeddings
print({"pyarrow", "safetensors", "pandas"} & set(sys.modules))

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
    ask = [sys.executable, "-c", code, str(tmp_path / "v.npy"), str(tmp_path / "v.parquet")]
    done = subprocess.run(ask, capture_output=True, text=True, check=True)
    heavy, mapped_mb, unpacked_mb = done.stdout.split("\n")[:3]
    assert heavy == "set()"
    assert int(mapped_mb) < 20
    assert int(unpacked_mb) < 60


def test_a_fingerprint_tells_data_apart(tmp_path):
    array = matrix()
    one = open_vectors(array).fingerprint()
    assert one == open_vectors(torch.from_numpy(array), "items", normalize=True).fingerprint()
    changed = array.copy()
    changed[6, 2] += 1e-6
    for other in (changed, array[:6], array[::-1], array.astype(np.float64), array.reshape(3, 7)):
        assert open_vectors(other).fingerprint() != one
