import re
from pathlib import Path

import numpy as np
import pytest

from vsehub.checks import InputError
from vsehub.data import Precomp
from vsehub.data import precomp as feature_file

FLICKR8K = Path(__file__).parents[3] / "shared" / "data" / "flickr8k"


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


def in_the_file(array):
    """Whether the array reads straight from its file, through any number of views."""
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return type(array).__name__ == "mmap"


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
@pytest.mark.parametrize("shape", [(4,), (3, 2)])
@pytest.mark.parametrize(("rows", "captions"), [(6, 30), (6, 18), (6, 6), (10, 10), (1, 5)])
def test_single_rows(tmp_path, rows, captions, shape, dtype):
    ims = features(rows, *shape, dtype=dtype)
    split = Precomp(write(tmp_path / "f8k", ims, captions, ids=range(rows))).load("train")
    np.testing.assert_array_equal(split.images, ims)
    assert split.images.dtype == dtype
    assert in_the_file(split.images)
    assert split.image_index.tolist() == [t * rows // captions for t in range(captions)]
    assert split.names == [str(i) for i in range(rows)]


@pytest.mark.parametrize("ids", [range(7), [i // 5 for i in range(35)]])
@pytest.mark.parametrize("shape", [(4,), (3, 2)])
def test_rows_repeated_five_times_are_seen_once(tmp_path, shape, ids, monkeypatch):
    monkeypatch.setattr(feature_file, "_BLOCK_BYTES", 1)  # a block an image
    ims = features(7, *shape)
    ims[3] = ims[2]  # two photos alike are two images still
    split = Precomp(write(tmp_path, ims.repeat(5, axis=0), 35, ids=ids)).load("train")
    np.testing.assert_array_equal(split.images, ims)
    assert in_the_file(split.images)
    assert split.image_index.tolist() == [t // 5 for t in range(35)]
    assert split.names == [str(i) for i in range(7)]


def test_a_broken_repetition_is_damage(tmp_path):
    ims = features(200).repeat(5, axis=0)
    ims[5 * 100 + 3] += 1  # not among the 64 images of the sample
    assert "differ for images i = 100. The file is damaged" in refused(write(tmp_path, ims, 1000))


def test_names_splits_and_prefixes(tmp_path):
    write(tmp_path / "coco_precomp", features(2), 10, prefix="testall")
    source = Precomp(tmp_path / "coco_precomp", test="testall")
    assert source.name == "coco_precomp"
    assert Precomp(tmp_path / "coco_precomp", name="coco").name == "coco"
    assert source.load("test").names is None
    write(tmp_path / "coco_precomp", features(2), 10, prefix="testall", ids=range(10))
    assert source.load("test").names is None, "ids of captions are no image names"
    with pytest.raises(InputError, match="split is 'dev'; choose one of 'train', 'val', 'test'"):
        source.load("dev")


@pytest.mark.parametrize("captions", [b"one\r\ntwo\r\n", b"one\ntwo", b"\xef\xbb\xbfone\r\ntwo"])
def test_line_ends(tmp_path, captions):
    assert Precomp(write(tmp_path, features(2), captions)).load("train").captions == ["one", "two"]


def test_only_newlines_end_lines(tmp_path):
    lines = ["a\u2028b", "a\x0bb\x85", "a\rb", " a "]
    assert Precomp(write(tmp_path, features(2), lines)).load("train").captions == lines


@pytest.mark.parametrize(("rows", "captions"), [(6, 29), (6, 5), (30, 6), (25, 30)])
def test_numbers_that_do_not_match(tmp_path, rows, captions):
    message = refused(write(tmp_path, features(rows), captions))
    assert f"train_ims.npy has {rows} rows but " in message
    assert f"train_caps.txt has {captions} captions; expected the same whole number" in message


def test_ids_that_do_not_match(tmp_path):
    assert "train_ids.txt has 3 lines; expected 2, one per image, or 10" in refused(
        write(tmp_path, features(2), 10, ids=range(3))
    )


def test_missing_files(tmp_path):
    with pytest.raises(InputError, match=r"no such file or folder: .*absent. Put .*train_ims.npy .*train_caps.txt"):
        Precomp(tmp_path / "absent")
    assert "features there: of no split" in refused(tmp_path)
    write(tmp_path, features(2), 10)
    write(tmp_path, features(2), 10, prefix="testall")
    message = refused(tmp_path, "test")
    assert f"the split 'test' has no file {tmp_path / 'test_ims.npy'}; features there: testall, train" in message
    assert message.endswith("or name another prefix, as in data.test=testall")
    (tmp_path / "train_caps.txt").unlink()
    assert f"has no file {tmp_path / 'train_caps.txt'}" in refused(tmp_path)
    with pytest.raises(InputError, match="is a file; give a folder"):
        Precomp(tmp_path / "train_ims.npy")


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_bad_rows_are_numbered_and_counted(tmp_path, dtype, monkeypatch):
    monkeypatch.setattr(feature_file, "_BLOCK_BYTES", 64)
    ims = features(100, 3, 2, dtype=dtype)
    ims[7, 1, 1], ims[50, 0, 0], ims[[1, 2, 3, 5, 8, 13, 99]] = np.nan, -np.inf, -0.0
    ims[20, 0] = 0
    message = refused(write(tmp_path, ims, 500))
    assert "of 100 feature rows, counted from 0: row 7 holds NaN; row 50 holds infinite values; " in message
    assert "; rows 1, 2, 3, 5, 8, ... (7 in all) hold only zeros. Extract" in message


def test_a_zero_region_and_extreme_numbers_are_fine(tmp_path):
    ims = np.full((2, 3, 2), np.finfo(np.float32).max, np.float32)
    ims[1] = -np.finfo(np.float32).smallest_subnormal
    ims[0, 1] = 0
    Precomp(write(tmp_path, ims, 10)).load("train")


@pytest.mark.parametrize(
    ("captions", "message"),
    [
        (b"one\n\nthree\n \n", r"train_caps.txt:2: the line is empty \(2 such of 4 lines\)"),
        (b"one\ntwo\n\n", "train_caps.txt:3: the line is empty"),
        (b"", "train_caps.txt is empty; expected one caption per line"),
        (b"one\ncaf\xe9 x\n", r"train_caps.txt:2: byte 0xe9 at place 4 of the line is not UTF-8. .*iconv"),
    ],
)
def test_bad_captions(tmp_path, captions, message):
    assert re.search(message, refused(write(tmp_path, features(2), captions)))


@pytest.mark.parametrize(
    ("ims", "message"),
    [
        (np.ones((2, 3), np.int64), r"holds int64 \(<i8\) numbers; expected float16 or float32"),
        (np.ones((2, 3)), r"holds float64 .*astype\('float32'\)"),
        (np.ones((2, 3), ">f4"), r"holds float32 \(>f4\) numbers; .*byte order"),
        (np.array([[1.0], None], object), "cannot be read as features .*Python objects"),
        (np.ones(10, np.float32), r"has shape \(10,\); expected \(rows, dim\) or"),
        (np.ones((0, 4), np.float32), r"cannot be read as features|has shape \(0, 4\)"),
    ],
)
def test_bad_arrays(tmp_path, ims, message):
    assert re.search(message, refused(write(tmp_path, ims, 10)))


@pytest.mark.parametrize("keep", [0, 4, 60, 150])
def test_a_file_cut_short(tmp_path, keep):
    path = write(tmp_path, features(2), 10) / "train_ims.npy"
    path.write_bytes(path.read_bytes()[:keep])
    assert "train_ims.npy cannot be read as features (numpy says: " in refused(tmp_path)


def test_no_npy_files(tmp_path):
    path = write(tmp_path, features(2), 10) / "train_ims.npy"
    path.write_text("version https://git-lfs.github.com/spec/v1\n")
    assert "cannot be read as features" in refused(tmp_path)
    path.write_bytes(b"PK\x03\x04")
    assert "cannot be read as features" in refused(tmp_path)
    with path.open("wb") as handle:
        np.savez(handle, features(2))
    assert "is an archive of arrays" in refused(tmp_path)


@pytest.mark.skipif(not FLICKR8K.is_dir(), reason="the real features are not here: ../shared/data/flickr8k")
@pytest.mark.parametrize(("folder", "shape"), [("global", (1280,)), ("grid", (16, 256))])
def test_real_features(folder, shape):
    source = Precomp(FLICKR8K / folder)
    assert source.name == folder
    for split, images in (("train", 6000), ("val", 500), ("test", 500)):
        data = source.load(split)
        assert data.images.shape == (images, *shape)
        assert data.images.dtype == np.float16
        assert in_the_file(data.images)
        assert len(data.captions) == 5 * images
        assert data.image_index.tolist() == [t // 5 for t in range(5 * images)]
        assert len(set(data.names)) == images
