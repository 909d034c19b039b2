import json
import logging
from pathlib import Path

import numpy as np
import pytest
from photo_files import arranged
from PIL import Image

from vsehub.checks import InputError
from vsehub.data import Karpathy
from vsehub.data.photos import pictures as picture_check

FLICKR8K = Path(__file__).parents[4] / "shared" / "data" / "flickr8k"
# split, folder, how many captions; image n is of the grey value 10 n.
COCO = [
    ("val", "val2014", 5),
    ("train", "train2014", 5),
    ("restval", "val2014", 6),
    ("test", "val2014", 5),
    ("train", "train2014", 7),
    ("test", "val2014", 1),
]


def coco(root, images=COCO, flat=False):
    """A folder of pictures and the json of their splits, as COCO's are laid out."""
    entries = []
    for n, (split, folder, captions) in enumerate(images):
        place = root / "pictures" / ("" if flat else folder)
        place.mkdir(parents=True, exist_ok=True)
        Image.new("L", (12, 9), 10 * n).save(place / f"{n}.png")
        sentences = [{"raw": f"caption {c} of {n}", "tokens": ["not", "read"]} for c in range(captions)]
        entries.append({"filename": f"{n}.png", "filepath": folder, "split": split, "sentences": sentences})
    (root / "splits.json").write_text(json.dumps({"dataset": "coco", "images": entries}))
    return entries


def source(root, **changed):
    settings = {"size": 8, "resize": 8, "cache": str(root / "cache")}
    return Karpathy(root / "splits.json", root / "pictures", **arranged(settings | changed))


def greys(found):
    return found.images[:][:, 0, 0, 0].tolist()


def refused(root, split="train", **changed):
    with pytest.raises(InputError) as caught:
        source(root, **changed).load(split)
    return str(caught.value)


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("restval", ["train", "leave"])
def test_splits_as_the_json_says(tmp_path, restval, flat, caplog):
    caplog.set_level(logging.INFO)
    coco(tmp_path, flat=flat)
    data = source(tmp_path, restval=restval)
    assert data.name == "coco"
    for split, rows in {"train": [1, 2, 4] if restval == "train" else [1, 4], "val": [0], "test": [3, 5]}.items():
        found = data.load(split)
        assert greys(found) == [10 * row for row in rows]
        assert found.images.shape == (len(rows), 3, 8, 8)
        assert found.names == [f"{row}.png" for row in rows]
        counts = [COCO[row][2] for row in rows]
        assert found.captions == [f"caption {c} of {row}" for row in rows for c in range(COCO[row][2])]
        assert found.image_index.tolist() == [n for n, count in enumerate(counts) for _ in range(count)]
        assert len(found.fingerprint()) == 16
    whole = "splits.json: 1 images of restval, 2 images of test, 2 images of train, 1 images of val"
    assert caplog.text.count(whole) == 1
    assert f"train: read {3 if restval == 'train' else 2} pictures, 5 to 7 captions per picture" in caplog.text
    assert "val: read 1 pictures, 5 captions per picture" in caplog.text


def test_names(tmp_path):
    coco(tmp_path)
    assert source(tmp_path, name="mine").name == "mine"
    content = json.loads((tmp_path / "splits.json").read_text())
    del content["dataset"]
    (tmp_path / "splits.json").write_text(json.dumps(content))
    assert source(tmp_path).name == "splits"


def test_captions_are_one_line_each(tmp_path):
    entries = coco(tmp_path, COCO[:2])
    entries[1]["sentences"] = [{"raw": "  A man\n rides\u00a0a horse.\r\n"}]
    (tmp_path / "splits.json").write_text(json.dumps({"images": entries}))
    assert source(tmp_path).load("train").captions == ["A man rides a horse."]


def test_only_training_is_augmented(tmp_path):
    coco(tmp_path)
    assert [source(tmp_path, augment="vsepp").load(split).images.augments for split in ("train", "val")] == [
        True,
        False,
    ]
    assert not source(tmp_path).load("train").images.augments
    assert source(tmp_path, crops=10).load("test").images.shape == (2, 10, 3, 8, 8)


def test_pictures_without_captions(tmp_path, caplog):
    coco(tmp_path, [("train", "", count) for count in (2, 0, 3)], flat=True)
    message = refused(tmp_path)
    assert "1 of 3 pictures have no caption: 1.png" in message
    assert message.endswith("with data.pictures.uncaptioned=leave_out")
    found = source(tmp_path, uncaptioned="leave_out").load("train")
    assert (found.names, greys(found), found.image_index.tolist()) == (["0.png", "2.png"], [0, 20], [0, 0, 1, 1, 1])
    assert "1 of 3 pictures have no caption: 1.png. They are left out" in caplog.text


def test_equal_captions_of_two_images_are_two(tmp_path):
    entries = coco(tmp_path, [("train", "", 1)] * 2, flat=True)
    for entry in entries:
        entry["sentences"] = [{"raw": "a dog"}, {"raw": "a dog"}]
    (tmp_path / "splits.json").write_text(json.dumps({"images": entries}))
    found = source(tmp_path).load("train")
    assert (found.captions, found.image_index.tolist(), found.pairs) == (["a dog"] * 4, [0, 0, 1, 1], None)


def break_files(root, rows):
    for row in rows:
        next((root / "pictures").rglob(f"{row}.png")).write_text("no picture")


def test_damaged_files_stop_or_are_left_out(tmp_path, caplog):
    coco(tmp_path, [("train", "", 2 + n % 2) for n in range(24)], flat=True)
    break_files(tmp_path, range(0, 24, 2))
    message = refused(tmp_path)
    assert (
        "images: 12 of 24 files of the split 'train' in pictures cannot be decoded: 0.png (not a picture), 2.png "
        in message
    )
    assert "8.png (not a picture), ... (12 in all). Copy them again, or leave them" in message
    assert message.endswith("with data.pictures.unreadable=leave_out")
    assert "10.png" not in message
    found = source(tmp_path, unreadable="leave_out").load("train")
    assert found.names == [f"{n}.png" for n in range(1, 24, 2)]
    assert greys(found) == [10 * n for n in range(1, 24, 2)]
    assert found.captions == [f"caption {c} of {n}" for n in range(1, 24, 2) for c in range(3)]
    assert found.image_index.tolist() == [i for i in range(12) for _ in range(3)]
    assert (
        "12 of 24 files of the split 'train' in pictures cannot be decoded and are left out with their captions"
        in caplog.text
    )
    assert "22.png (not a picture)" in caplog.text
    break_files(tmp_path, range(24))
    assert "24 of 24 files of the split 'train' in pictures cannot be decoded, which is all" in refused(
        tmp_path, unreadable="leave_out"
    )


class TestMemory:
    """What was found whole is not decoded again."""

    @pytest.fixture
    def decoded(self, monkeypatch):
        seen, inspect = [], picture_check.inspect
        monkeypatch.setattr(picture_check, "inspect", lambda path: (seen.append(Path(path).name), inspect(path))[1])
        return seen

    def test_until_it_changes(self, tmp_path, decoded):
        coco(tmp_path)
        for _ in range(2):
            source(tmp_path).load("train")
            assert sorted(decoded) == ["1.png", "2.png", "4.png"]
        source(tmp_path).load("val")
        source(tmp_path).load("train")
        assert sorted(decoded) == ["0.png", "1.png", "2.png", "4.png"]
        decoded.clear()
        break_files(tmp_path, [2])
        for _ in range(2):  # damage is not remembered: the disk may have been at fault
            assert "1 of 3 files" in refused(tmp_path)
        assert decoded == ["2.png", "2.png"]

    def test_after_a_kill(self, tmp_path, decoded, monkeypatch):
        coco(tmp_path, [("train", "", 1)] * 10, flat=True)
        monkeypatch.setattr(picture_check, "_AT_ONCE", 3)
        counted = picture_check.inspect

        def killed(path):
            if Path(path).name == "7.png":
                raise KeyboardInterrupt
            return counted(path)

        monkeypatch.setattr(picture_check, "inspect", killed)
        with pytest.raises(KeyboardInterrupt):
            source(tmp_path).load("train")
        monkeypatch.setattr(picture_check, "inspect", counted)
        decoded.clear()
        source(tmp_path).load("train")
        assert set(decoded) <= {"6.png", "7.png", "8.png", "9.png"}
        assert "7.png" in decoded

    @pytest.mark.parametrize(
        "content", ["{", "[]", '{"1.png": 3}', "\x00", '{"version": 3, "whole": {}}', '{"version": 2, "whole": []}']
    )
    def test_a_damaged_memory_is_none(self, tmp_path, decoded, content):
        coco(tmp_path)
        source(tmp_path).load("train")
        (memory,) = (tmp_path / "cache").iterdir()
        memory.write_text(content)
        source(tmp_path).load("train")
        assert len(decoded) == 6

    def test_another_folder_is_another_memory(self, tmp_path, decoded):
        for name in ("one", "other"):
            coco(tmp_path / name)
            source(tmp_path / name, cache=str(tmp_path / "cache")).load("val")
        assert decoded == ["0.png", "0.png"]

    def test_a_file_is_no_cache(self, tmp_path):
        coco(tmp_path)
        (tmp_path / "cache").write_text("a file, no folder")
        for cache in ("cache", "cache/below"):
            with pytest.raises(InputError, match=r"cache: .*cache is not a folder; give a folder"):
                source(tmp_path, cache=str(tmp_path / cache))

    def test_nowhere_to_write(self, tmp_path, decoded, caplog, monkeypatch):
        coco(tmp_path)

        def full(path, text):
            raise OSError("no room")

        monkeypatch.setattr("vsehub.data.photos.pictures.write_text", full)
        assert len(source(tmp_path).load("train").names) == 3
        assert "cannot be written" in caplog.text
        assert "checked again at the next start" in caplog.text

    def test_in_the_users_cache_folder(self, tmp_path, monkeypatch):
        coco(tmp_path)
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
        source(tmp_path, cache=None).load("train")
        assert [path.suffix for path in (tmp_path / "xdg" / "vsehub").iterdir()] == [".json"]


def test_missing_files(tmp_path):
    coco(tmp_path, [("train", "train2014", 1)] * 9)
    for n in (0, 2, 3, 4, 5, 6, 7):
        (tmp_path / "pictures" / "train2014" / f"{n}.png").unlink()
    message = refused(tmp_path, unreadable="leave_out")
    assert "7 of 9 files of the split 'train' are missing: 0.png, 2.png, 3.png, 4.png, 5.png, ... (7 in all)" in message
    assert f"Looked in {tmp_path / 'pictures'}, {tmp_path / 'pictures' / 'train2014'}. Unpack" in message


def test_one_name_in_two_folders(tmp_path):
    """Without their folders they would be one file: that is missing, not taken for both."""
    names = [("train", "train2014"), ("val", "val2014")]
    entries = [
        {"filename": "0.png", "filepath": folder, "split": split, "sentences": [{"raw": split}]}
        for split, folder in names
    ]
    coco(tmp_path, COCO[:1], flat=True)
    (tmp_path / "splits.json").write_text(json.dumps({"images": entries}))
    assert "1 of 1 files of the split 'val' are missing: 0.png" in refused(tmp_path, "val")
    for n, (_, folder) in enumerate(names):
        (tmp_path / "pictures" / folder).mkdir()
        Image.new("L", (12, 9), 10 * n).save(tmp_path / "pictures" / folder / "0.png")
    assert [greys(source(tmp_path).load(split)) for split, _ in names] == [[0], [10]]


def test_links_in_the_folder_are_followed(tmp_path):
    coco(tmp_path, COCO[:2])
    (tmp_path / "pictures" / "train2014").rename(tmp_path / "elsewhere")
    (tmp_path / "pictures" / "train2014").symlink_to(tmp_path / "elsewhere")
    assert greys(source(tmp_path).load("train")) == [10]


def test_missing_splits(tmp_path):
    coco(tmp_path, COCO[:2])
    message = refused(tmp_path, "test")
    assert "the split 'test'; it has 1 of train, 1 of val" in message
    assert "split is 'dev'; choose one of 'train', 'val', 'test'" in refused(tmp_path, "dev")


IMAGE = {"filename": "0.png", "split": "train", "sentences": [{"raw": "a"}]}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"images": [', "is damaged or no json .*expected .*the layout of dataset_coco.json"),
        (b"\xff\xfe\x00", "is damaged or no json"),
        ("[" * 100_000, "is damaged or no json"),
        ([1], "has no images; expected"),
        ({"images": []}, "has no images"),
        ({"annotations": [], "images": {}}, "has no images"),
        ({"images": [IMAGE, 3]}, "image 1, counted from 0, is no object"),
        ({"images": [{"file_name": "0.png", "id": 3}]}, "image 0, counted from 0, has filename None, no text"),
        ({"images": [IMAGE | {"split": None}]}, "has split None, no text"),
        ({"images": [IMAGE | {"filepath": 7}]}, "has filepath 7, no text"),
        (
            {"images": [IMAGE, IMAGE | {"filename": "b", "sentences": {}}]},
            r"image 1, b, has no list of captions \(sent",
        ),
        ({"images": [IMAGE | {"sentences": None}]}, "image 0, 0.png, has no list of captions"),
        ({"images": [IMAGE | {"sentences": ["a"]}]}, r"0.png, has a caption without words \(raw is None\)"),
        ({"images": [IMAGE | {"sentences": [{"raw": " \n"}]}]}, r"without words \(raw is ' \\n'\)"),
        (
            {"images": [IMAGE, IMAGE | {"filename": "1.png", "split": "trian"}]},
            "image 1, 1.png, is of the split 'trian'; known are train, restval, val, test. Correct it",
        ),
        *(
            ({"images": [IMAGE | named]}, f"image 0 lies in {said}; expected a path inside the folder of images")
            for named, said in (
                ({"filename": "../0.png"}, "'' as '../0.png'"),
                ({"filename": "/etc/0.png"}, "'' as '/etc/0.png'"),
                ({"filepath": "a/../.."}, "'a/../..' as '0.png'"),
                ({"filepath": "/etc"}, "'/etc' as '0.png'"),
            )
        ),
        ({"images": [IMAGE, IMAGE]}, r"1 pictures come more than once, 0 of them in several splits: 0.png \(train, tr"),
        (
            {"images": [IMAGE | {"filename": f"{n % 8}", "split": ("val", "test")[n // 8]} for n in range(15)]},
            r"7 pictures come more than once, 7 of them in several splits: 0 \(val, test\), .*, 4 \(val, test\), \.\.",
        ),
        (
            {"images": [IMAGE | {"filepath": "a"}, IMAGE | {"filename": "./0.png", "filepath": "a", "split": "test"}]},
            r"1 pictures come more than once, 1 of them in several splits: a/0.png \(train, test\)",
        ),
        ({"images": [IMAGE | {"sentences": [{"raw": "a \ud83d"}]}]}, r"0.png: the caption 'a \\ud83d' holds half of a"),
        ({"images": [IMAGE | {"filename": "a\n.png"}]}, r"image 0, counted from 0: filename 'a\\n.png' has a line br"),
        ({"images": [IMAGE | {"filename": "\ud83d"}]}, r"image 0, counted from 0: filename '\\ud83d' holds half"),
    ],
)
def test_bad_json(tmp_path, content, message):
    coco(tmp_path, COCO[:2])
    raw = (
        content
        if isinstance(content, bytes)
        else (content if isinstance(content, str) else json.dumps(content)).encode()
    )
    (tmp_path / "splits.json").write_bytes(raw)
    with pytest.raises(InputError, match=message):
        source(tmp_path).load("train")


def test_bad_settings(tmp_path):
    coco(tmp_path)
    for changed, message in (
        ({"restval": "val"}, "restval is 'val'; choose one of 'train', 'leave'"),
        ({"augment": "simclr"}, "augment is 'simclr'; choose one of 'none', 'vsepp'"),
        ({"unreadable": "skip"}, "unreadable is 'skip'; choose one of 'stop', 'leave_out'"),
        ({"resize": 7}, "resize is 7, below size, 8"),
        ({"crops": 4}, "crops is 4"),
    ):
        with pytest.raises(InputError, match=message):
            source(tmp_path, **changed)
    with pytest.raises(InputError, match=r"json: no such file or folder: .*absent.json. Give Karpathy's json"):
        Karpathy(tmp_path / "absent.json", tmp_path)
    with pytest.raises(InputError, match="images: no such file or folder"):
        Karpathy(tmp_path / "splits.json", tmp_path / "absent")
    with pytest.raises(InputError, match=r"images: .* is a file; give the folder"):
        Karpathy(tmp_path / "splits.json", tmp_path / "splits.json")
    with pytest.raises(InputError, match=r"json: .* is a folder; give the json file"):
        Karpathy(tmp_path, tmp_path)


@pytest.mark.skipif(not FLICKR8K.is_dir(), reason="the real photos are not here: ../shared/data/flickr8k")
def test_real_photos(tmp_path):
    photos = FLICKR8K / "images"
    settings = {"size": 112, "resize": 128, "augment": "vsepp", "cache": str(tmp_path)}
    data = Karpathy(FLICKR8K / "dataset_flickr8k.json", photos, **arranged(settings))
    assert data.name == "flickr8k"
    for split, file, images in (("train", "train", 6000), ("val", "dev", 500), ("test", "test", 500)):
        found = data.load(split)
        assert found.images.shape == (images, 3, 112, 112)
        assert found.names == (FLICKR8K / "global" / f"{file}_ids.txt").read_text().splitlines()
        assert len(found.captions) == 5 * images
    middle = np.asarray(Image.open(photos / found.names[77]).convert("RGB"))[8:120, 8:120].transpose(2, 0, 1)
    np.testing.assert_array_equal(found.images[77], middle)
    drawn = found.images.augmented(np.array([77, 77]), np.array([385, 386]), (0, 0))
    assert (drawn[0] != drawn[1]).mean() > 0.5
