"""One contract of all sources of photos: the same pictures in another form are an equal source, or are refused."""

import io
import json
import os
import pickle
import zlib

import numpy as np
import pytest
from looped import looped
from photo_files import (
    SIDE,
    WRITERS,
    dataset_of,
    photos,
    picture,
    write_folder,
    write_imagefolder,
    write_karpathy,
    write_lines,
    write_saved,
    write_table,
)
from PIL import Image

from vsehub.checks import InputError
from vsehub.data import HuggingFace, Karpathy, PhotoColumns, PictureSettings, SplitDraw, Table
from vsehub.data.photos import source as sources
from vsehub.data.photos.source import draw_splits

SPLITS = ("train", "val", "test")
DRAWN = [kind for kind in WRITERS if kind != "karpathy"]
SMALL = {"pictures": PictureSettings(SIDE)}
LEFT_OUT = {"pictures": PictureSettings(SIDE, unreadable="leave_out")}


@pytest.fixture(params=WRITERS)
def kind(request):
    return request.param


def shown(part):
    """Of each picture: its name without its folder, pixels and captions."""
    captions = [{part.captions[t] for t in part.captions_of(row)} for row in range(len(part.images))]
    names = [name.rpartition("/")[2] for name in part.names]
    return list(zip(names, part.images[:].tolist(), captions, strict=True))


def expected(made):
    return [
        (
            photo.name,
            np.asarray(Image.open(io.BytesIO(photo.content)))[1:-1, 2:-2].transpose(2, 0, 1).tolist(),
            set(photo.captions),
        )
        for photo in made
    ]


def refused(data, split="train"):
    with pytest.raises(InputError) as caught:
        data.load(split)
    return str(caught.value)


def test_the_same_pictures_captions_and_splits(tmp_path, kind):
    made = photos()
    data = WRITERS[kind](tmp_path, made, **SMALL)
    for split in SPLITS:
        rows, part = [photo for photo in made if photo.split == split], data.load(split)
        assert shown(part) == expected(rows)
        every = [(row, caption) for row, photo in enumerate(rows) for caption in photo.captions]
        loaded = [(image, part.captions[text]) for image, text in part.pairs.tolist()]
        assert sorted(loaded) == sorted(every)
        distinct = len({caption for _, caption in every})
        assert len(part.captions) == (len(every) if kind == "karpathy" else distinct)
        assert part.shared == (len(part.captions) < len(every))
    order = np.random.default_rng(0).integers(0, 6, 40)
    images = data.load("train").images
    np.testing.assert_array_equal(images[order], images[:][order])
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(images))[:], images[:])


@pytest.mark.parametrize("kind", DRAWN, indirect=True)
def test_drawn_splits_are_equal_in_every_form(tmp_path, kind):
    made, draw = photos(), {"draw": SplitDraw(0.25, 0.25, 3)}
    (tmp_path / "own").mkdir()
    data = WRITERS[kind](tmp_path / "own", made, has_splits=False, **SMALL, **draw)
    table = write_table(tmp_path, made, has_splits=False, **SMALL, **draw)
    for split, count in zip(SPLITS, (6, 3, 3), strict=True):
        first, other = data.load(split), table.load(split)
        assert len(first.images) == count
        assert shown(first) == shown(other)
        assert (first.captions, first.fingerprint()) == (other.captions, other.fingerprint())


def eps():
    file = io.BytesIO()
    Image.new("RGB", (9, 9)).save(file, "EPS")
    return file.getvalue()


@pytest.mark.parametrize("content", [picture(4)[:60], eps()], ids=["damaged", "eps"])
def test_pictures_that_cannot_be_decoded(tmp_path, kind, content, caplog):
    made = photos()
    name, bad = made[4].name, [photo._replace(content=content) if n == 4 else photo for n, photo in enumerate(made)]
    assert name.partition(".")[0] in refused(WRITERS[kind](tmp_path, bad, **SMALL))
    (tmp_path / "again").mkdir()
    part = WRITERS[kind](tmp_path / "again", bad, **LEFT_OUT).load("train")
    assert shown(part) == expected([photo for n, photo in enumerate(made) if photo.split == "train" and n != 4])
    assert name in caplog.text
    assert part.pairs[:, 0].max() < 5


def test_pictures_without_captions_and_splits_without_pictures(tmp_path, kind, caplog):
    made = [photo._replace(captions=[" "] if n == 4 else photo.captions) for n, photo in enumerate(photos())]
    data = WRITERS[kind](tmp_path, made, **SMALL)
    assert [name for name, *_ in shown(data.load("train"))] == [f"{n:03d}.png" for n in (0, 1, 5, 8, 9)]
    assert "004.png" in caplog.text
    (tmp_path / "again").mkdir()
    bare = [photo._replace(captions=[""] if photo.split == "val" else photo.captions) for photo in made]
    assert "'val'" in refused(WRITERS[kind](tmp_path / "again", bare, **SMALL), "val")


def test_pictures_are_checked_once(tmp_path, kind, monkeypatch):
    decoded, hash_if_intact = [], sources.hash_if_intact
    monkeypatch.setattr(sources, "hash_if_intact", lambda file: (decoded.append(str(file)), hash_if_intact(file))[1])
    data = WRITERS[kind](tmp_path, photos(), **SMALL)
    contents = data.load("train").images.contents
    np.testing.assert_array_equal(data.load("train").images.contents, contents)
    assert len(decoded) == 6
    if kind in ("karpathy", "table", "lines"):
        (tmp_path / "photos" / "001.png").write_bytes(picture(1) + b" ")
        assert data.load("train").images.contents[1] != contents[1]
        assert len(decoded) == 7


def test_missing_pictures_empty_captions_and_one_of_two_splits(tmp_path, caplog):
    made = photos()
    more = [made[0]._replace(captions=["again"]), made[2]._replace(captions=[" "])]
    data = write_lines(tmp_path, [*made, *more], **LEFT_OUT)
    assert "again" in data.load("train").captions
    names = data.load("train").names
    for name in names:
        (tmp_path / "photos" / name).unlink()
    assert ", ".join(names) in refused(data)
    assert "captions are left out: 002.png" in caplog.text
    assert "000.png" in refused(write_lines(tmp_path, [*made, made[0]._replace(split="val")], **SMALL))


@pytest.mark.parametrize("write", [write_karpathy, write_table])
def test_missing_and_damaged_pictures_of_all_splits_are_named(tmp_path, write, caplog):
    """A file with other data behind its end passes."""
    file = io.BytesIO()
    Image.new("RGB", (40, 30), "red").save(file, "JPEG")
    jpeg, made = file.getvalue(), photos()
    for number, kind in enumerate(("GIF", "WEBP", "BMP", "TIFF")):
        file = io.BytesIO()
        Image.open(io.BytesIO(jpeg)).save(file, kind)
        made[number] = made[number]._replace(content=file.getvalue())
    made[4] = made[4]._replace(content=jpeg)
    made[5] = made[5]._replace(content=jpeg + bytes(100))
    write(tmp_path, made, **SMALL).require_pictures(SPLITS)
    for number, content in enumerate((b"", jpeg[:-30], b"<html>404</html>", picture(9)[:60]), 6):
        made[number] = made[number]._replace(content=content)
    made[10] = made[10]._replace(captions=[""])
    data = write(tmp_path, made, **SMALL)
    for named in ([6, 7, 8, 9], [11]):
        with pytest.raises(InputError) as caught:
            data.require_pictures(SPLITS)
        assert [n for n in range(12) if f"{n:03d}.png" in str(caught.value)] == named
        (tmp_path / "photos" / "011.png").unlink(missing_ok=True)
    assert "010.png (row " in caplog.text


@pytest.mark.parametrize("write", [write_karpathy, write_lines])
@pytest.mark.parametrize("changed", [{"captions": [3]}, {"captions": [["a"]]}, {"split": "trian"}, {"split": ""}])
def test_captions_and_splits_that_are_refused(tmp_path, write, changed):
    made = [photo._replace(**changed) if n == 1 else photo for n, photo in enumerate(photos())]
    assert repr(changed.get("split", "001.png"))[1:-1] in refused(write(tmp_path, made, **SMALL))


def test_splits_that_are_drawn():
    splits, other = (draw_splits(103, SplitDraw(0.1, 0.25, seed)) for seed in (3, 4))
    assert [int((splits == split).sum()) for split in SPLITS] == [67, 10, 26]
    assert zlib.crc32(" ".join(splits).encode()) == 1328171112, "no version may draw others"
    assert (splits != other).any()
    assert set(draw_splits(5, SplitDraw(0.2, 0.0))) == {"train", "val"}


def test_only_training_is_augmented(tmp_path):
    data = write_karpathy(tmp_path, photos(), pictures=PictureSettings(8, crops=10, augment="vsepp"))
    assert [data.load(split).images.augments for split in SPLITS] == [True, False, False]


@looped(
    ("make", "wrong"),
    [
        (PictureSettings, {"size": 0}),
        (PictureSettings, {"crops": 5}),
        (PictureSettings, {"augment": "x"}),
        (PictureSettings, {"unreadable": "skip"}),
        (Table, {"table": "none.csv"}),
        (Table, {"table": __file__, "images": "none"}),
    ],
)
def test_settings_that_are_refused(make, wrong):
    with pytest.raises(InputError, match=list(wrong)[-1]):
        make(**wrong)


def coco(root, flat=False, changed=()):
    """Three pictures of COCO's folders, the last one of restval; `changed` in the entry of the first."""
    images = []
    for number, split in enumerate(("train", "val", "restval")):
        folder, name = "train2014" if number == 0 else "val2014", f"{number}.png"
        path = root / "pictures" / ("" if flat else folder) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(number))
        images.append({"filename": name, "filepath": folder, "split": split, "sentences": [{"raw": " a\n dog"}] * 2})
    images[0] |= dict(changed)
    (root / "dataset_coco.json").write_text(json.dumps({"dataset": "coco", "images": images}))
    return Karpathy(root / "dataset_coco.json", root / "pictures", **SMALL)


@pytest.mark.parametrize("flat", [False, True])
def test_folders_and_restval_of_coco(tmp_path, flat):
    data = coco(tmp_path, flat)
    part = data.load("train")
    assert (data.name, part.names, part.captions) == ("coco", ["0.png", "2.png"], ["a dog"] * 4)
    assert part.pairs.tolist() == [[0, 0], [0, 1], [1, 2], [1, 3]]
    assert part.images[:][:, 0, -1, -1].tolist() == [0, 10]


@looped(
    "content",
    [
        *(f'{{"images": {images}}}' for images in ("null", "[3]", '{"a": 1}', '[{"file_name": "0.png", "id": 3}]')),
        '{"images": [{"filename": "0.png", "split": "train", "sentences": ["a"]}]}',
        *('{"images": [', "\ud800", "[" * 100_000, "[1]", "{}", ""),
    ],
)
def test_bad_json(tmp_path, content):
    data = coco(tmp_path)
    (tmp_path / "dataset_coco.json").write_bytes(content.encode(errors="surrogatepass"))
    assert "coco" in refused(data)


@looped("path", ["/secret.png", "../secret.png", "x/../../secret.png", "/photos/../secret.png"])
def test_paths_outside(tmp_path, path):
    for name in ("photos/000.png", "secret.png"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(picture(50))
    path = f"{tmp_path}{path}" if path.startswith("/") else path
    assert "secret.png" in refused(coco(tmp_path, changed={"filename": path if path[0] == "/" else f"../{path}"}))
    (tmp_path / "own.csv").write_text(f"image,caption,split\n{tmp_path}/photos/000.png,a,train\n{path},b,train\n")
    assert path in refused(Table(tmp_path / "own.csv", tmp_path / "photos", **SMALL))
    if path.startswith("/"):
        assert len(Table(tmp_path / "own.csv", "/", **SMALL).load("train").images) == 2


def test_columns_of_a_table(tmp_path):
    """Several columns of captions, other names, another form of a path; words for splits."""
    made = [photo._replace(split={"val": "Validation"}.get(photo.split, photo.split)) for photo in photos()]
    write_folder(tmp_path / "photos", made)
    rows = [[f"./{photo.name}", *[*photo.captions, "", ""][:3], photo.split] for photo in made]
    lines = ["\t".join(row) for row in [["file", "one", "two", "three", "part"], *rows]]
    (tmp_path / "a.tsv").write_text("\n".join(lines))
    data = Table(
        tmp_path / "a.tsv", tmp_path / "photos", PhotoColumns("file", ["one", "two", "three"], "part"), **SMALL
    )
    assert shown(data.load("val")) == expected([photo for photo in made if photo.split == "Validation"])
    for wrong in (PhotoColumns("file", "four"), PhotoColumns("file", "one", "prat"), PhotoColumns("image", "one")):
        assert "a.tsv" in refused(Table(tmp_path / "a.tsv", tmp_path / "photos", wrong))


@looped(
    "entry",
    ['"image": 7', '"image": ["b.png"]', '"image": " "', '"image": "b.png", "split": ["train"]', '"split": "a"'],
)
def test_bad_rows_of_a_table(tmp_path, entry):
    (tmp_path / "a.jsonl").write_text(f'{{"image": "000.png", "caption": "a"}}\n{{{entry}, "caption": "a"}}\n')
    assert "a.jsonl" in refused(Table(tmp_path / "a.jsonl"))


class TestHuggingFace:
    def test_columns(self, tmp_path):
        """Other names, several captions, rows that were chosen before saving."""
        dataset = dataset_of(photos()).add_column("part", ["train", "valid", "test"] * 4)
        dataset = dataset.add_column("more", [f"more {n}" for n in range(12)]).rename_column("image", "picture")
        dataset.select([3, 1, 5, 0]).save_to_disk(tmp_path / "saved")
        part = HuggingFace(tmp_path / "saved", PhotoColumns("picture", ["caption", "more"], "part"), **SMALL).load(
            "train"
        )
        assert part.names == ["003.png", "000.png"]
        assert {"caption 0 of 0", "more 0"} < {part.captions[t] for t in part.captions_of(1)}
        for wrong in (PhotoColumns("picture", "captoin"), PhotoColumns("caption")):
            assert "saved" in refused(HuggingFace(tmp_path / "saved", wrong))

    def test_rows_of_parts_of_one_time_are_apart(self, tmp_path):
        """Both parts have a row 0, and were written at the same time."""
        write_saved(tmp_path, photos())
        for file in (tmp_path / "saved").rglob("*.arrow"):
            os.utime(file, ns=(0, 0))
        data = HuggingFace(tmp_path / "saved", **SMALL)
        assert not {*data.load("train").images.contents} & {*data.load("val").images.contents}

    def test_files_elsewhere(self, tmp_path):
        import datasets  # here, since it takes long and would in each process that collects this file

        write_saved(tmp_path, photos(), has_splits=False)
        (tmp_path / "parts").mkdir()
        (tmp_path / "parts" / "dataset_dict.json").write_text(json.dumps({"splits": ["../saved"]}))
        assert "elsewhere" in refused(HuggingFace(tmp_path / "parts", draw=SplitDraw(0, 0)))
        datasets.Dataset.from_dict({"image": ["/etc/passwd"], "caption": ["a"]}).save_to_disk(tmp_path / "paths")
        assert "elsewhere" in refused(HuggingFace(tmp_path / "paths"))

    @pytest.mark.parametrize("name", ["../secret.png", "absent.png", "/etc/passwd"])
    def test_imagefolders_name_their_own_pictures(self, tmp_path, name):
        write_imagefolder(tmp_path, photos(), has_splits=False)
        (tmp_path / "secret.png").write_bytes(picture(50))
        (tmp_path / "pets" / "metadata.jsonl").write_text(json.dumps({"file_name": name, "caption": ["a"]}))
        assert "pets" in refused(HuggingFace(tmp_path / "pets", draw=SplitDraw(0, 0)))

    def test_a_pipe_does_not_hang(self, tmp_path):
        data = write_imagefolder(tmp_path, photos(), has_splits=False)
        os.mkfifo(tmp_path / "pets" / "pipe.png")
        assert "pipe.png" in refused(data)
