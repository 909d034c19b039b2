"""Every format gives the same rows and ids, and what is no matrix of finite numbers is refused with its file's name."""

import io
import json
import os
import re
import zipfile
from contextlib import suppress

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from looped import looped
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch

from vsehub.checks import InputError
from vsehub.data import open_vectors
from vsehub.data.vectors import embeddings
from vsehub.data.vectors.embeddings import VectorFile, check_vectors

IDS = [f"név {row}" for row in range(7)]
MATRIX = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)


def fixed(array):
    return pa.FixedSizeListArray.from_arrays(pa.array(array.ravel()), array.shape[1])


def write_table(path, **columns):
    pq.write_table(pa.table(columns), path, row_group_size=3, write_page_checksum=True)


def write_text(path, array, separator=",", ids=IDS, **settings):
    frame = pd.DataFrame(array if array.dtype.kind == "i" else array.astype(float))  # all digits
    if ids is not None:
        frame.insert(1, "id", ids)
    path.write_text(frame.to_csv(index=False, sep=separator, **settings))


def write_lines(path, array):
    rows = [{"words": "x", "v": row, "id": name} for row, name in zip(array.tolist(), IDS, strict=True)]
    path.write_bytes(b"\xef\xbb\xbf" + "\n\n".join(map(json.dumps, rows)).encode())


def write_tensor(path, array):
    torch.save(torch.nn.Parameter(torch.from_numpy(array), requires_grad=array.dtype.kind == "f"), path)


# name of the file -> (what writes it, whether it holds ids)
WRITERS = {
    "plain.npy": (np.save, False),
    "fortran.npy": (lambda path, array: np.save(path, np.asfortranarray(array)), False),
    "swapped.NPY": (lambda path, array: np.save(path.open("wb"), array.astype(array.dtype.newbyteorder())), False),
    "stored.npz": (lambda path, array: np.savez(path, v=array, ids=np.array(IDS), scale=np.ones(3)), True),
    "packed.npz": (lambda path, array: np.savez_compressed(path, array), False),
    "plain.safetensors": (lambda path, array: save_file({"v": array, "scale": np.ones(3)}, path), False),
    "fixed.parquet": (lambda path, array: write_table(path, v=fixed(array), id=IDS), True),
    "tensor.parquet": (
        lambda path, array: write_table(path, v=pa.FixedShapeTensorArray.from_numpy_ndarray(array)),
        False,
    ),
    "lists.parquet": (lambda path, array: write_table(path, v=list(array), id=pa.array(IDS).dictionary_encode()), True),
    "columns.parquet": (
        lambda path, array: write_table(path, note=IDS, id=IDS, **{f"a.{n}": array[:, n] for n in range(3)}),
        True,
    ),
    "header.csv": (write_text, True),
    "bare.csv": (lambda path, array: write_text(path, array, ids=None, header=False), False),
    "numbered.csv": (lambda path, array: write_text(path, array, ids=None), False),
    "semicolons.csv": (lambda path, array: write_text(path, array, ";", quoting=1), True),
    "tabs.TSV": (lambda path, array: write_text(path, array, "\t"), True),
    "lines.jsonl": (write_lines, True),
    "tensor.pt": (write_tensor, False),
    "old.pth": (
        lambda path, array: torch.save(torch.from_numpy(array), path, _use_new_zipfile_serialization=False),
        False,
    ),
    "dictionary.pt": (lambda path, array: torch.save({"v": torch.from_numpy(array), "epoch": 3}, path), False),
}
TEXT = (".csv", ".tsv", ".jsonl")


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(embeddings, "_BLOCK_BYTES", 2 * 3 * 4)


def refused(path, name):
    """A file is refused as it is opened or looked through; the message names it."""
    with pytest.raises(InputError, match=re.escape(name)):
        check_vectors(open_vectors(path, normalize=True))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize("name", WRITERS)
def test_formats(tmp_path, name, dtype):
    array = (50 * MATRIX).astype(dtype)
    if dtype == np.int8 and name in ("columns.parquet", "tensor.parquet"):
        pytest.skip("columns of whole numbers are refused, tensors of bytes are not written")
    path, (write, with_ids) = tmp_path / name, WRITERS[name]
    write(path, array)
    vectors, expected = open_vectors(path), torch.from_numpy(array).float()
    assert vectors.shape == (7, 3)
    if path.suffix.lower() not in TEXT:
        same = open_vectors(array).with_ids(IDS) if with_ids else open_vectors(array)
        assert (vectors.dtype, vectors.fingerprint()) == (same.dtype, same.fingerprint())
    assert vectors.ids == (IDS if with_ids else None)
    vectors.rows(0, 7).zero_()  # a copy
    assert torch.equal(vectors.rows(2, 5), expected[2:5])
    assert torch.equal(vectors.take([5, 0, 0, 6]), expected[[5, 0, 0, 6]])
    firsts, blocks = zip(*vectors.blocks(), strict=True)
    assert firsts == (0, 2, 4, 6)
    assert torch.equal(torch.cat(blocks), expected)
    torch.testing.assert_close(open_vectors(path, normalize=True).rows(0, 7), torch.nn.functional.normalize(expected))


def test_bfloat16(tmp_path):
    tensor = torch.from_numpy(MATRIX).bfloat16()
    save_torch({"v": tensor}, tmp_path / "v.safetensors")
    torch.save(tensor, tmp_path / "v.pt")
    for vectors in (*map(open_vectors, (tmp_path / "v.safetensors", tmp_path / "v.pt", tensor)),):
        assert vectors.dtype == torch.bfloat16
        assert torch.equal(vectors.rows(1, 6), tensor[1:6].float())
        assert torch.equal(vectors.take([6, 1]), tensor[[6, 1]].float())


def test_one_of_several_arrays_is_named(tmp_path):
    arrays = {"image": MATRIX, "text": -MATRIX, "words": np.zeros((7, 3), np.int64)}
    np.savez(tmp_path / "v.npz", **arrays)
    save_file(arrays, tmp_path / "v.safetensors")
    write_table(tmp_path / "v.parquet", **{name: fixed(array) for name, array in arrays.items()})
    torch.save({name: torch.from_numpy(array) for name, array in arrays.items()}, tmp_path / "v.pt")
    lines = [{"image": row, "text": [-value for value in row]} for row in MATRIX.tolist()]
    (tmp_path / "v.jsonl").write_text("\n".join(map(json.dumps, lines)))
    for path in tmp_path.iterdir():
        assert torch.equal(open_vectors(f"{path}::text").rows(0, 7), torch.from_numpy(-MATRIX))
        for name in (path, f"{path}::txet", f"{path}::words"):
            refused(name, path.name)
    np.save(tmp_path / "a::b.npy", MATRIX)
    assert len(open_vectors(tmp_path / "a::b.npy")) == 7


class Harm:
    """A pickle of this creates a folder when it is read."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __reduce__(self):
        return os.mkdir, (self.folder,)


def npy(header):
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": "<f4", "fortran_order": False, "shape": (3, 8)} | header)
    return content.getvalue() + bytes(96)


def npy_of(text):
    """A file whose header, which numpy reads as a Python literal, is this text."""
    version = 2 if len(text) > 65535 else 1
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2 * version, "little") + text.encode() + bytes(64)


def zipped(content):
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("x.npy", content)
    return archive.getvalue()


def tensors(value):
    content = io.BytesIO()
    torch.save(value, content)
    return content.getvalue()


def safetensors(shape, data):
    header = json.dumps({"v": {"dtype": "F32", "shape": shape, "data_offsets": [0, data]}}).encode()
    return len(header).to_bytes(8, "little") + header + bytes(1200)


NASTY = {
    "one dimension.npy": np.ones(4),
    "three dimensions.npy": np.ones((2, 3, 4)),
    "no rows.npy": np.ones((0, 4)),
    "no columns.npy": np.ones((4, 0)),
    "whole numbers.npy": np.ones((2, 3), np.int64),
    "truth values.npy": np.ones((2, 3), bool),
    "objects.npy": np.array([[1.0, None]], object),
    "objects.npz": {"v": MATRIX, "ids": np.array(IDS, object)},
    "few ids.npz": {"v": MATRIX, "ids": IDS[1:]},
    "twice.npz": {"v": MATRIX, "ids": [*IDS[1:], IDS[1]]},
    "no matrix.npz": {"v": np.ones(3)},
    "NaN.npy": MATRIX + np.array([0, np.nan, 0]),
    "infinity.npy": MATRIX + np.array([0, np.inf, 0]),
    "zeros.npy": MATRIX * (np.arange(7) > 0)[:, None],
    "more than is there.npy": npy({"shape": (10**12, 8)}),
    "overflow.npy": npy({"shape": (2**62, 4)}),
    "negative.npy": npy({"shape": (-3, 8)}),
    "truth in the shape.npy": npy({"shape": (True, 24)}),
    "a call.npy": npy_of("__import__('os').mkdir('harm')"),
    "a product.npy": npy_of("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2 * 4)}"),
    "deep lists.npy": npy_of("[" * 4000),
    "deep signs.npy": npy_of("-" * 9000 + "1"),
    "deep dictionaries.npy": npy_of("{1: " * 2000),
    "deep tuples.npy": npy_of("(" * 100_000),
    "no header.npy": npy_of(""),
    "deep lists.npz": zipped(npy_of("[" * 4000)),
    "more than is there.safetensors": safetensors([10**12, 3], 12 * 10**12),
    "unknown type.safetensors": safetensors([10, 30], 1200).replace(b"F32", b"I32"),
    "objects.pt": tensors({"a": torch.zeros(2, 2), "b": Harm("harm")}),
    "module.pt": tensors(torch.nn.Linear(2, 2)),
    "nested.pt": tensors({"model": {"v": torch.ones(2, 2)}}),
    "list.pt": tensors([torch.ones(2, 2)]),
    "sparse.pt": tensors(torch.eye(3).to_sparse()),
    "view.pt": tensors(torch.as_strided(torch.ones(1), (1 << 40, 4), (0, 0))),
    "unequal.pt": tensors(torch.nested.nested_tensor([torch.zeros(2), torch.zeros(3)])),
    "meta.pt": tensors(torch.zeros(2, 3, device="meta")),
    "whole numbers.pt": tensors(torch.ones(2, 2).long()),
    "ragged.parquet": {"v": [[1.0, 2.0], [1.0]]},
    "no lists.parquet": {"v": [[1.0, 2.0], None]},
    "shorter and longer.parquet": {"v": pa.array([[1.0, 2.0], None, [3.0, 4.0]], pa.list_(pa.float32(), 2))},
    "null.parquet": {"v": [[1.0, 2.0], [1.0, None]]},
    "null of a column.parquet": {"a": [1.0, None], "b": [1.0, 2.0]},
    "empty lists.parquet": {"v": pa.array([[], []], pa.list_(pa.float32()))},
    "no rows.parquet": {"v": pa.array([], pa.list_(pa.float32()))},
    "whole numbers.parquet": {"v": [[1, 2], [3, 4]]},
    "whole numbers among them.parquet": {"a": [1.0, 2.0], "b": [1, 2]},
    "texts.parquet": {"caption": IDS},
    "no id.parquet": {"id": [*IDS[:5], None, None], "v": fixed(MATRIX)},
    "twice.parquet": {"id": [*IDS[1:], IDS[1]], "v": fixed(MATRIX)},
    "ragged.csv": "a,b\n1,2\n3\n",
    "longer.csv": "a,b\n1,2\n3,4,5\n",
    "a word.csv": "a,b\n1,2\n3,dog\n",
    "an empty cell.csv": "1,2\n3,\n",
    "NA.csv": "1,2\n3,NA\n",
    "nan.csv": "1,2\n3,nan\n",
    "words.csv": "dog,1,2\ncat,2,3\n",
    "an index of pandas.csv": ",0,1\n0,0.5,0.2\n",
    "a year.csv": "id,1990,1991\nq,0.1,0.2\n",
    "a zero byte.csv": b"\x000.5\n0.25\n",
    "nan first.csv": "nan,0.5\n0.1,0.2\n",
    "ids first.csv": "q,0.5\nr,0.2\n",
    "ids of another name.csv": "ID,a,b\n1,0.5,0.2\n",
    "a score.parquet": {"a": [1.0, 2.0], "Score": [1.0, 2.0]},
    "one name twice.csv": "a,a\n1,2\n",
    "ids alone.csv": "id\nq\n",
    "no id.csv": "id,a\nq,0.5\n,0.2\n",
    "twice.csv": "id,a\nq,1\nq,2\n",
    "no rows.csv": "a,b\n",
    "latin.csv": b"id,b\n\xff,2\n",
    "an open quote.csv": 'id,a\nq,1\n"r,2\ns,3\n',
    "ragged.jsonl": '{"v": [1, 2]}\n{"v": [1]}\n',
    "lists alone.jsonl": "[1, 2]\n",
    "texts.jsonl": '{"v": [1, "2"]}\n',
    "truth.jsonl": '{"v": [true]}\n',
    "null.jsonl": '{"v": [1, null]}\n',
    "nested.jsonl": '{"v": [[1]]}\n',
    "two lists.jsonl": '{"v": [1], "w": [1]}\n',
    "no list.jsonl": '{"v": [1]}\n{"w": 1}\n',
    "some ids.jsonl": '{"id": "x", "v": [1]}\n{"v": [2]}\n',
    "cut.jsonl": '{"v": [1]}\n{"v"\n',
    "large.jsonl": f'{{"v": [{10**400}]}}\n',
    "pickle.pkl": b"x",
}


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("name", NASTY)
def test_nasty_files(tmp_path, name, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path, content = tmp_path / name, NASTY[name]
    if isinstance(content, bytes | str):
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    elif isinstance(content, np.ndarray):
        np.save(path, content)
    elif path.suffix == ".npz":
        np.savez(path, **content)
    else:
        write_table(path, **content)
    refused(path, name)
    assert not (tmp_path / "harm").exists()


@pytest.mark.parametrize("name", WRITERS)
def test_damaged_files(tmp_path, name):
    """Half a file is refused, unless it is text; flipped bits are refused or change a number, nothing else."""
    path = tmp_path / name
    WRITERS[name][0](path, MATRIX)
    whole = path.read_bytes()
    sizes = [0, 1, *([] if path.suffix.lower() in TEXT else [9, 60, len(whole) // 2, len(whole) - 1])]
    for content in (*(whole[:keep] for keep in sizes), b"version https://git-lfs.github.com/spec/v1\n"):
        path.unlink()  # a file that is mapped keeps its bytes
        path.write_bytes(content)
        refused(path, name)
    for place in np.random.default_rng(1).integers(len(whole), size=40).tolist():
        path.unlink()
        path.write_bytes(bytes([*whole[:place], whole[place] ^ 8, *whole[place + 1 :]]))
        with suppress(InputError):
            check_vectors(open_vectors(path, normalize=False))


def test_spaces_beside_numbers(tmp_path):
    np.savetxt(tmp_path / "a.csv", MATRIX, delimiter=", ")
    torch.testing.assert_close(open_vectors(tmp_path / "a.csv").rows(0, 7), torch.from_numpy(MATRIX))


def test_a_masked_array_is_refused():
    with pytest.raises(InputError, match="masked"):
        open_vectors(np.ma.masked_array(MATRIX, MATRIX > 0))


def test_a_fingerprint_is_of_all_rows_and_a_file_is_read_once(tmp_path, monkeypatch):
    rows, reads = np.random.default_rng(0).normal(size=(150, 3)).astype(np.float32), []
    np.save(tmp_path / "a.npy", rows)
    before = (tmp_path / "a.npy").stat()
    whole = VectorFile.blocks
    monkeypatch.setattr(VectorFile, "blocks", lambda self, *count: reads.append(self) or whole(self, *count))
    assert len({open_vectors(tmp_path / "a.npy").fingerprint() for _ in range(3)}) == len(reads) == 1
    shuffled = rows.copy()
    shuffled[[1, 2]] = rows[[2, 1]]
    np.save(tmp_path / "a.npy", shuffled)
    os.utime(tmp_path / "a.npy", ns=(before.st_atime_ns, before.st_mtime_ns))
    changed = open_vectors(tmp_path / "a.npy").fingerprint()
    assert changed == open_vectors(shuffled).fingerprint() != open_vectors(rows).fingerprint()


def test_a_fingerprint_tells_data_apart():
    fingerprint = open_vectors(MATRIX).fingerprint()
    assert fingerprint == open_vectors(torch.from_numpy(MATRIX), "items", normalize=True).fingerprint()
    changed = MATRIX.copy()
    changed[6, 2] += 1e-6
    for other in (changed, MATRIX[:6], MATRIX[::-1], MATRIX.astype(np.float64), MATRIX.reshape(3, 7)):
        assert open_vectors(other).fingerprint() != fingerprint


@looped("normalize", [None, True, False])
@looped("make", [np.asarray, torch.from_numpy])
def test_bad_rows_are_numbered_and_counted(make, normalize):
    array = np.random.default_rng(0).normal(size=(100, 3)).astype(np.float32)
    array[7, 1], array[50, 0], array[51] = np.nan, -np.inf, (np.inf, np.nan, 1)
    array[[1, 2, 3, 5, 8, 13, 99]] = -0.0
    with pytest.raises(InputError, match=r"items.*7, 51.*50.*1, 2, 3, 5, 8, \.\.\. \(7"):
        check_vectors(open_vectors(make(array), "items", normalize=normalize))
    for size in (1e-20, 1e20):  # of norms that float32 cannot hold
        with pytest.raises(InputError, match=r"queries.*row 1 "):
            check_vectors(open_vectors(np.array([[1, 0], [size, size]], np.float32), normalize=True))


def test_norms_are_unit_or_normalize_is_set():
    array = np.random.default_rng(0).normal(size=(100, 16)).astype(np.float32)
    array /= np.linalg.norm(array, axis=1, keepdims=True)
    assert check_vectors(open_vectors(array))["unit_share"] == 1
    array[3] *= 1.002
    with pytest.raises(InputError, match=r"queries.*rows 3 .*normalize=true"):
        check_vectors(open_vectors(array))
    assert check_vectors(open_vectors(array.astype(np.float16)))["unit_share"] == 1, "halves are less exact"
    norms = check_vectors(open_vectors(array, normalize=True))
    assert (norms["unit_share"], norms["most"]) == pytest.approx((0.99, 1.002))
