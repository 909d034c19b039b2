import re

import numpy as np
import pytest
from looped import looped

from vsehub.checks import InputError
from vsehub.data import Precomp
from vsehub.data import precomp as feature_file


def write(root, features, captions, prefix="train", ids=None):
    """A split of the layout; captions: how many, a list, or the file's bytes."""
    root.mkdir(exist_ok=True)
    np.save(root / f"{prefix}_ims.npy", features)
    if not isinstance(captions, bytes):
        lines = [f"caption {t}" for t in range(captions)] if isinstance(captions, int) else captions
        captions = "".join(line + "\n" for line in lines).encode()
    (root / f"{prefix}_caps.txt").write_bytes(captions)
    if ids is not None:
        (root / f"{prefix}_ids.txt").write_text("".join(f"{name}\n" for name in ids))
    return root


def features(rows, *shape, dtype=np.float32):
    return np.random.default_rng(0).normal(size=(rows, *(shape or (4,)))).astype(dtype)


def refused(root, split="train"):
    with pytest.raises(InputError) as caught:
        Precomp(root).load(split)
    return str(caught.value)


@pytest.mark.parametrize(("shape", "dtype"), [((4,), np.float16), ((3, 2), np.float32)])
@pytest.mark.parametrize(("rows", "captions"), [(6, 30), (6, 18), (10, 10), (1, 5)])
def test_single_rows(tmp_path, rows, captions, shape, dtype):
    ims = features(rows, *shape, dtype=dtype)
    split = Precomp(write(tmp_path, ims, captions, ids=range(rows))).load("train")
    np.testing.assert_array_equal(split.images, ims, strict=True)
    assert isinstance(split.images, np.memmap)
    assert split.pairs[:, 0].tolist() == [t * rows // captions for t in range(captions)]
    assert split.names == [str(i) for i in range(rows)]


@pytest.mark.parametrize("ids", [range(7), [i // 5 for i in range(35)]])
def test_rows_repeated_five_times_are_seen_once(tmp_path, ids, monkeypatch):
    monkeypatch.setattr(feature_file, "_BLOCK_BYTES", 1)  # a block an image
    ims = features(7, 3, 2)
    ims[3] = ims[2]  # two photos alike are two images still
    split = Precomp(write(tmp_path, ims.repeat(5, axis=0), 35, ids=ids)).load("train")
    np.testing.assert_array_equal(split.images, ims)
    assert split.pairs[:, 0].tolist() == [t // 5 for t in range(35)]
    assert split.names == [str(i) for i in range(7)]
    broken = features(200).repeat(5, axis=0)
    broken[5 * 100 + 3] += 1
    assert "i = 100" in refused(write(tmp_path, broken, 1000))


def test_names_and_prefixes(tmp_path):
    source = Precomp(write(tmp_path / "coco_precomp", features(2), 10, prefix="testall"), test="testall")
    assert (source.name, source.load("test").names) == ("coco_precomp", None)
    write(tmp_path / "coco_precomp", features(2), 10, prefix="testall", ids=range(10))
    assert source.load("test").names is None, "ids of captions are no image names"


@pytest.mark.parametrize(
    ("rows", "captions", "ids", "named"),
    [
        *(
            (rows, captions, None, f"{rows} rows .* {captions} captions")
            for rows, captions in ((6, 29), (6, 5), (30, 6))
        ),
        (2, 10, range(3), r"train_ids\.txt"),
        (2, b"one\ncaf\xe9 x\n", None, r"train_caps\.txt"),
    ],
)
def test_files_that_do_not_fit(tmp_path, rows, captions, ids, named):
    assert re.search(named, refused(write(tmp_path, features(rows), captions, ids=ids)))


def test_missing_files(tmp_path):
    write(tmp_path, features(2), 10)
    assert re.search(r"data\.test: .*test_ims\.npy.* train", refused(tmp_path, "test"))
    with pytest.raises(InputError, match="absent"):
        Precomp(tmp_path / "absent")
    assert "train_ims.npy" in refused(tmp_path / "train_ims.npy")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_bad_rows_are_numbered_and_counted(tmp_path, dtype, monkeypatch):
    """A zero region and extreme numbers are none."""
    monkeypatch.setattr(feature_file, "_BLOCK_BYTES", 64)
    ims = features(100, 3, 2, dtype=dtype)
    ims[20, 0], ims[21], ims[22] = 0, np.finfo(dtype).max, -np.finfo(dtype).smallest_subnormal
    Precomp(write(tmp_path, ims, 500)).load("train")
    ims[7, 1, 1], ims[50, 0, 0], ims[[1, 2, 3, 5, 8, 13, 99]] = np.nan, -np.inf, -0.0
    assert re.search(r"row 7 .*row 50 .*1, 2, 3, 5, 8, \.\.\. \(7", refused(write(tmp_path, ims, 500)))


@looped(
    "content",
    [
        np.ones((2, 3), np.int64),
        np.ones((2, 3)),
        np.ones((2, 3), ">f4"),
        np.array([[1.0], None], object),
        np.ones(10, np.float32),
        np.ones((0, 4), np.float32),
        *(0, 4, 60, 150),  # bytes that are left
        b"version https://git-lfs.github.com/spec/v1\n",
        b"PK\x03\x04",
        b"\x93NUMPY\x01\x00\xa0\x0f" + b"[" * 4000,  # a header of lists within lists
    ],
)
def test_bad_features(tmp_path, content):
    path = write(tmp_path, content if isinstance(content, np.ndarray) else features(2), 10) / "train_ims.npy"
    if not isinstance(content, np.ndarray):
        path.write_bytes(path.read_bytes()[:content] if isinstance(content, int) else content)
    assert "train_ims.npy" in refused(tmp_path)
