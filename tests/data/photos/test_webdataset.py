"""Photos in tar shards: what the index holds, when it is made again, and shards that are damaged."""

import gzip
import io
import json
import os
import pickle
import tarfile
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from looped import looped
from photo_files import SIDE, add, arranged, as_shards, captions_of, name_of, picture
from torch.utils.data import DataLoader

from vsehub.checks import InputError
from vsehub.data import SplitDraw, SplitFiles, WebDataset
from vsehub.data.photos import tar_shards
from vsehub.data.photos.webdataset import shard_files

NUMBERS = list(range(12))
ALL = {"draw": SplitDraw(0.0, 0.0)}


def source(root, **changed):
    settings = {"size": SIDE, "resize": SIDE, "cache": str(root / "cache"), "caption": "captions"}
    return WebDataset(**arranged(settings | ({} if "splits" in changed else {"shards": str(root)}) | changed))


def refused(root, split="train", **changed):
    with pytest.raises(InputError) as caught:
        source(root, **ALL | changed).load(split)
    return str(caught.value)


def shard(path, members):
    """A tar file of these members, name and content."""
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            add(tar, name, content)
    return path


def text(number):
    return f"caption of {number}".encode()


def test_shards_of_splits_and_captions_of_json(tmp_path):
    for split, numbers in (("train", NUMBERS[:6]), ("val", NUMBERS[6:9]), ("test", NUMBERS[9:])):
        as_shards(tmp_path, numbers, prefix=split)
    data = source(
        tmp_path,
        splits=SplitFiles(
            str(tmp_path / "train-{000..001}.tar"), str(tmp_path / "val-*.tar"), [str(tmp_path / "test-000.tar")]
        ),
    )
    assert data.name == tmp_path.name
    for split, numbers in (("train", NUMBERS[:6]), ("val", NUMBERS[6:9]), ("test", NUMBERS[9:])):
        part = data.load(split)
        assert part.names == [name_of(n) for n in numbers]
        assert [part.images[row][0, -1, -1] for row in range(len(numbers))] == [5 * n for n in numbers]
        for row, number in enumerate(numbers):
            assert {part.captions[t] for t in part.captions_of(row)} == set(captions_of(number))
    assert data.load("train").pairs is not None


def test_captions_of_text_files_and_several_keys(tmp_path):
    """Endings in capitals, folders within, files that belong to no picture; a caption of two lines becomes one."""
    members = [("a/1.PNG", picture(1)), ("a/1.txt", b"\xef\xbb\xbfone\r\nline\n"), ("b/1.jpg", picture(2))]
    members += [("b/1.txt", "ü".encode()), ("b/1.cls", b"3"), ("c.txt", b"of nothing"), ("._1.png", b"x")]
    shard(tmp_path / "one.tar", members)
    part = source(tmp_path, caption=None, **ALL).load("train")
    assert (part.names, part.captions) == (["a/1.PNG", "b/1.jpg"], ["one line", "ü"])
    content = {"short": "s", "long": ["l", " l  l ", ""], "none": None}
    shard(tmp_path / "one.tar", [("1.png", picture(1)), ("1.json", json.dumps(content).encode())])
    assert source(tmp_path, caption=["short", "long", "none"], **ALL).load("train").captions == ["s", "l", "l l"]


def test_a_shard_is_read_through_once(tmp_path, monkeypatch):
    as_shards(tmp_path, NUMBERS)
    read, members = [], tar_shards._members
    monkeypatch.setattr(tar_shards, "_members", lambda path, raw: (read.append(path), members(path, raw))[1])
    first = source(tmp_path, **ALL).load("train")
    assert len(read) == 3
    again = source(tmp_path, **ALL).load("train")
    assert len(read) == 3
    assert again.fingerprint() == first.fingerprint()
    assert not list((tmp_path / "cache" / "shards").glob(".*"))
    source(tmp_path, caption="url", **ALL).load("train")  # other captions
    assert len(read) == 6
    path = tmp_path / "photos-001.tar"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    source(tmp_path, **ALL).load("train")
    assert read[6:] == [str(path)]
    for index in (tmp_path / "cache" / "shards").iterdir():
        index.write_bytes(index.read_bytes()[:100])
    assert source(tmp_path, **ALL).load("train").fingerprint() == first.fingerprint()
    assert len(read) == 10


def test_an_index_that_cannot_be_written(tmp_path, caplog, monkeypatch):
    as_shards(tmp_path, NUMBERS)

    def full(file, index):
        raise OSError("no room")

    monkeypatch.setattr("vsehub.data.photos.tar_shards._store", full)
    assert len(source(tmp_path, **ALL).load("train").images) == 12
    assert "the shard will be indexed again at the next start" in caplog.text


class _Rows:
    def __init__(self, images):
        self.images = images

    def __len__(self):
        return len(self.images)

    def __getitem__(self, row):
        return self.images[row]


def test_threads_and_processes_read_the_same(tmp_path):
    as_shards(tmp_path, NUMBERS, each=5)
    images = source(tmp_path, threads=4, **ALL).load("train").images
    expected = np.stack([images[row] for row in range(12)])
    assert [one[0, -1, -1] for one in expected] == [5 * n for n in NUMBERS]
    order = np.random.default_rng(0).integers(0, 12, 400)
    with ThreadPoolExecutor(8) as pool:
        for row, one in zip(order, pool.map(lambda row: images[int(row)], order), strict=True):
            np.testing.assert_array_equal(one, expected[row])
    np.testing.assert_array_equal(images[order], expected[order])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))[:], expected)
    loaded = list(DataLoader(_Rows(images), batch_size=None, num_workers=2, collate_fn=lambda one: one))
    np.testing.assert_array_equal(np.stack([np.asarray(one) for one in loaded]), expected)


def test_names(tmp_path):
    """A name that leads elsewhere is an id within; names that shards share get the shard's."""
    secret = tmp_path.parent / f"{tmp_path.name}-secret.png"
    members = [(f"../{secret.name}", picture(1)), (f"../{secret.stem}.txt", text(1))]
    shard(tmp_path / "a.tar", [*members, ("/etc/x.png", picture(2)), ("/etc/x.txt", text(2))])
    assert source(tmp_path, caption=None, **ALL).load("train").names == [secret.name, "etc/x.png"]
    assert not secret.exists()
    shard(tmp_path / "a.tar", [("1.png", picture(1)), ("1.txt", text(1))])
    shard(tmp_path / "b.tar", [("1.png", picture(2)), ("1.txt", text(2))])
    found = source(tmp_path, caption=None, **ALL).load("train")
    assert (found.names, found.captions) == (["a/1.png", "b/1.png"], ["caption of 1", "caption of 2"])


def test_links_in_a_shard_are_not_followed(tmp_path):
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for name, content in (("1.png", picture(1)), ("1.txt", text(1)), ("2.txt", text(2))):
            add(tar, name, content)
        link = tarfile.TarInfo("2.png")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    assert source(tmp_path, caption=None, **ALL).load("train").names == ["1.png"]


def test_pictures_and_captions_that_are_missing_or_damaged(tmp_path, caplog):
    good = [("1.png", picture(1)), ("1.txt", text(1))]
    shard(tmp_path / "a.tar", [*good, ("2.png", b"no picture"), ("2.txt", text(2)), ("3.png", picture(3))])
    assert "1 of 3 pictures have no caption: 3.png" in refused(tmp_path, caption=None)
    message = refused(tmp_path, caption=None, uncaptioned="leave_out")
    assert "shards: 1 of 2 files of the split 'train' in 1 shard cannot be decoded: 2.png (not a picture)" in message
    found = source(tmp_path, caption=None, uncaptioned="leave_out", unreadable="leave_out", **ALL).load("train")
    assert (found.names, found.captions) == (["1.png"], ["caption of 1"])
    found.images[0]
    (tmp_path / "a.tar").write_bytes((tmp_path / "a.tar").read_bytes()[:600])
    with pytest.raises(InputError, match=r"1.png in .*a.tar cannot be decoded \(the shard ends after 88 of its"):
        found.images[0]


def test_shards_that_are_damaged(tmp_path):
    members = [("1.png", picture(1)), ("1.txt", text(1)), ("2.png", picture(2)), ("2.txt", text(2))]
    whole = shard(tmp_path / "a.tar", members).read_bytes()
    with tarfile.open(fileobj=io.BytesIO(whole)) as tar:
        offsets = [member.offset for member in tar]
        end = tar.offset
    for content, message in (
        (whole[: end - 600], "is cut off"),
        (whole[: offsets[1] - 300], "is no tar file, or damaged (unexpected end of data)"),
        (whole[: offsets[2]], "is cut off: it ends without the mark of a tar file's end"),
        (whole[: offsets[2] + 100], "is cut off"),
        (whole[: offsets[2]] + b"x" * 512 + whole[offsets[2] + 512 :], f"is damaged at byte {offsets[2]}. Copy"),
        (b"", "is no tar file, or damaged"),
        (gzip.compress(whole), "is no tar file, or damaged"),
        (b"x" * 2000, "is no tar file, or damaged"),
    ):
        (tmp_path / "a.tar").write_bytes(content)
        found = refused(tmp_path, caption=None)
        assert message in found, (message, found)
        assert f"{tmp_path / 'a.tar'} is" in found
    for members, message in (
        ([("1.png", picture(1)), ("1.json", b"{")], "1.json is no json"),
        ([("1.png", picture(1)), ("1.json", b"[]")], "1.json is no object; expected one with the key captions"),
        (
            [("1.png", picture(1)), ("1.json", b'{"caption": "a"}')],
            "has no key 'captions' (did you mean caption?); it has",
        ),
        ([("1.png", picture(1)), ("1.json", b'{"captions": 3}')], "1.json holds '3' under 'captions'"),
        ([("1.png", picture(1)), ("1.txt", b"a")], "holds no .json with captions; it has .png, .txt"),
        (
            [("1.gif", picture(1)), ("1.json", b'{"captions": "a"}')],
            "holds no pictures (.jpg, .jpeg, .png, .webp); it h",
        ),
        ([("1.png", picture(1)), ("1.jpg", picture(2))], "holds two pictures '1'"),
        ([("1\n.png", picture(1)), ("1\n.json", b'{"captions": "a"}')], "holds a file named '1\\n.png'"),
    ):
        shard(tmp_path / "a.tar", members)
        assert message in refused(tmp_path), message
    shard(tmp_path / "a.tar", [("1.png", picture(1)), ("1.txt", b"\xe9")])
    assert "1.txt is not UTF-8" in refused(tmp_path, caption=None)
    shard(tmp_path / "a.tar", [("1.png", picture(1)), ("1.json", b"{}")])
    assert "Name the key of the captions in the json with data.caption" in refused(tmp_path, caption=None)


def test_patterns(tmp_path):
    for name in ("b-08", "b-09", "b-10", "a-1"):
        shard(tmp_path / f"{name}.tar", [])

    def stems(given):
        return [os.path.basename(path)[:-4] for path in shard_files("train", given)]

    assert stems(str(tmp_path)) == ["a-1", "b-08", "b-09", "b-10"]
    assert stems(str(tmp_path / "b-{08..10}.tar")) == ["b-08", "b-09", "b-10"]
    assert stems([str(tmp_path / "b-1*.tar"), str(tmp_path / "a-1.tar")]) == ["b-10", "a-1"]
    (tmp_path / "empty").mkdir()
    (tmp_path / "a.tar.gz").touch()
    for given, message in (
        (tmp_path / "b-{08..11}.tar", "train: no such file or folder: .*b-11.tar. Give a folder of .tar files"),
        (tmp_path / "c-*.tar", "no file matches"),
        (tmp_path / "b-{10..08}.tar", r"\{10..08\} counts down"),
        (tmp_path / "b-{0..9999}{0..9999}.tar", "stands for 100,000,000 files"),
        (tmp_path / "empty", "holds no .tar files"),
        (tmp_path / "a.tar.gz", "no .tar file. Of a compressed shard no part"),
        ([], "is an empty list"),
    ):
        with pytest.raises(InputError, match=message):
            shard_files("train", given if isinstance(given, list) else str(given))


def test_bad_settings(tmp_path):
    as_shards(tmp_path, NUMBERS)
    one, other = (str(tmp_path / f"photos-00{n}.tar") for n in (0, 1))
    for given, message in (
        ({}, "neither shards nor splits came; expected the files of each split, data.splits.train=FILE"),
        ({"shards": one, "splits": SplitFiles(val=other)}, "both shards and splits came"),
        (
            {"splits": SplitFiles(one, str(tmp_path / "x" / ".." / "photos-000.tar"))},
            "shards come twice: .*photos-000.tar",
        ),
        ({"splits": SplitFiles("absent.tar")}, "splits.train: no such file or folder: absent.tar"),
        ({"shards": one, "caption": []}, "caption is an empty list"),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(InputError, match=message):
            WebDataset(**given)
    with pytest.raises(
        InputError, match=r"no pictures of the split 'test'; it has 4 of train, 4 of val. .*data.shards=S"
    ):
        source(tmp_path, splits=SplitFiles(one, other)).load("test")


@looped(
    ("key", "value"),
    [("images", [9]), ("images", [-1]), ("offset", [-512, 0]), ("size", [2**62, 5]), ("names", b"[1, 2]")],
)
def test_an_index_that_does_not_fit_its_shard_is_made_again(key, value, tmp_path):
    members = [("1.png", picture(1)), ("1.txt", b"one"), ("2.png", picture(2)), ("2.txt", b"two")]
    shard(tmp_path / "a.tar", members)
    whole = source(tmp_path, caption=None, **ALL).load("train")
    (path,) = (tmp_path / "cache" / "shards").glob("*.npz")
    held = dict(np.load(path))
    changed = np.frombuffer(value, np.uint8) if isinstance(value, bytes) else np.resize(value, held[key].shape)
    np.savez(path, **held | {key: changed})
    found = source(tmp_path, caption=None, **ALL).load("train")
    assert (found.names, found.captions) == (whole.names, whole.captions)
    assert [found.images[row].tolist() for row in range(2)] == [whole.images[row].tolist() for row in range(2)]
