"""Photos that a table names: what its rows give, in every form, and what is refused."""

import csv
import json
import logging
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from photo_files import SIDE, arranged, as_folder, as_table, captions_of, name_of, picture

from vsehub.checks import InputError
from vsehub.criteria import NearestNeighbor
from vsehub.data import PhotoColumns, SplitDraw, Table
from vsehub.data.overlap import warn_of_shared
from vsehub.data.photos import files
from vsehub.data.photos.files import look_up
from vsehub.data.text.vocabulary import Vocabulary
from vsehub.evaluation import EncodedSplit, Protocol
from vsehub.evaluation.encode import text_table
from vsehub.evaluation.evaluate import evaluate
from vsehub.similarities import Cosine
from vsehub.training.batches import Draw, PairDataset

NUMBERS = list(range(12))
SPLITS = ["train"] * 6 + ["validation"] * 3 + ["test"] * 3


def source(root, table="captions.csv", **changed):
    settings = {"size": SIDE, "resize": SIDE, "cache": str(root / "cache"), "images": root / "photos"}
    return Table(root / table, **arranged(settings | changed))


def shown(data):
    """For each split: names, pixels, and the captions of each picture."""
    found = {}
    for split in ("train", "val", "test"):
        part = data.load(split)
        captions = [[part.captions[t] for t in part.captions_of(row)] for row in range(len(part.images))]
        found[split] = part.names, part.images[:].tolist(), captions
    return found


def written(root, rows, name="captions.csv"):
    """A csv of these rows, the first the header, beside the pictures."""
    as_folder(root / "photos", NUMBERS)
    with (root / name).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    return root


def with_splits(root):
    rows = [(name_of(n), caption, SPLITS[n]) for n in NUMBERS for caption in captions_of(n)]
    return written(root, [("image", "caption", "split"), *rows])


def refused(root, split="train", **changed):
    with pytest.raises(InputError) as caught:
        source(root, **changed).load(split)
    return str(caught.value)


def test_every_form_of_the_same_table(tmp_path):
    """Rows of a picture, several columns, lists in jsonl and parquet; other names and other forms of a path."""
    expected = shown(source(with_splits(tmp_path)))
    assert expected["val"][0] == ["006.png", "007.png", "008.png"]
    assert [set(one) for one in expected["val"][2]] == [set(captions_of(n)) for n in (6, 7, 8)]
    wide = [(f"./{name_of(n)}", *[*captions_of(n), "", "", ""][:3], SPLITS[n]) for n in NUMBERS]
    written(tmp_path, [("file", "one", "two", "three", "part"), *wide], "wide.csv")
    with (tmp_path / "wide.tsv").open("w", newline="") as file:
        csv.writer(file, delimiter="\t").writerows([("file", "one", "two", "three", "part"), *wide])
    named = PhotoColumns("file", ["one", "two", "three"], "part")
    lines = [{"caption": captions_of(n), "image": name_of(n), "split": SPLITS[n]} for n in NUMBERS]
    (tmp_path / "lists.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    pq.write_table(pa.Table.from_pylist(lines), tmp_path / "lists.parquet")
    for table, columns in (("wide.csv", named), ("wide.tsv", named), ("lists.jsonl", None), ("lists.parquet", None)):
        assert shown(source(tmp_path, table, columns=columns)) == expected, table


def test_a_caption_of_several_pictures_belongs_to_all(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    part = source(with_splits(tmp_path)).load("train")
    shared = part.captions.index("a thing that several pictures show")
    assert sorted(part.pairs[part.pairs[:, 1] == shared, 0].tolist()) == [0, 3]
    assert part.image_index[shared] == 0
    assert len(part.pairs) == sum(len(captions_of(n)) for n in range(6))
    assert "train: 1 of 13 captions belong to several pictures" in caplog.text
    alone = part.with_own_captions()
    assert alone.pairs is None
    for row in range(6):
        assert {alone.captions[t] for t in np.flatnonzero(alone.image_index == row)} == set(captions_of(row))
    assert source(tmp_path).load("val").pairs is None
    rows = [("image", "caption", "split"), *[(name_of(0), "twice", "train")] * 2, (name_of(1), "once", "train")]
    found = source(written(tmp_path, rows)).load("train")
    assert (found.captions, found.pairs) == (["twice", "once"], None)


def test_shared_captions_in_batches_and_in_metrics(tmp_path):
    """A batch marks every picture of a caption as positive; in the metrics each of them is a right answer."""
    part = source(with_splits(tmp_path)).load("train")
    dataset = PairDataset(part, text_table(part.captions, Vocabulary.build(part.captions, 1), None))
    batch = dataset[Draw(0, np.arange(len(dataset)))]
    texts = [part.captions[t] for t in batch.caption_ids]
    for n, image in enumerate(batch.image_ids.tolist()):
        for m, caption in enumerate(texts):
            assert bool(batch.positives[n, m]) == (caption in captions_of(int(part.names[image][:3])))
    texts = np.zeros((len(part.captions), len(part.images)), np.float32)
    texts[part.pairs[:, 1], part.pairs[:, 0]] = 1
    # The shared caption is nearest to the second of its pictures, far from the first.
    texts[part.captions.index("a thing that several pictures show"), 0] = 0
    encoded = EncodedSplit.of(part, torch.eye(6), torch.from_numpy(texts))
    assert evaluate(encoded, Cosine(), NearestNeighbor(), Protocol("single")).metrics["rsum"] == 600


def test_splits_are_drawn_by_picture(tmp_path, caplog):
    caplog.set_level(logging.INFO)
    as_table(tmp_path, NUMBERS)
    found = shown(source(tmp_path, draw=SplitDraw(0.25, 0.25)))
    assert sorted(name for names, _, _ in found.values() for name in names) == [name_of(n) for n in NUMBERS]
    for names, pixels, captions in found.values():
        assert names == sorted(names)
        for name, one, own in zip(names, pixels, captions, strict=True):
            assert set(own) == set(captions_of(int(name[:3])))
            assert one[0][-1][-1] == 5 * int(name[:3])
    assert "drawn from 12 pictures by seed 0: 6 train, 3 val, 3 test" in caplog.text
    assert shown(source(tmp_path, draw=SplitDraw(0.25, 0.25, 1))) != found
    with_splits(tmp_path)
    assert len(source(tmp_path, columns=PhotoColumns(split=None)).load("val").images) == 1


def test_paths_that_lead_out_of_the_folder(tmp_path):
    as_table(tmp_path, NUMBERS)
    (tmp_path / "secret.png").write_bytes(picture(50))
    outside = str(tmp_path / "secret.png")
    (tmp_path / "photos" / "link.png").symlink_to(tmp_path / "secret.png")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "far.png").write_bytes(picture(51))
    (tmp_path / "photos" / "sub").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "photos" / "own.png").symlink_to(tmp_path / "photos" / "000.png")
    shares = {"draw": SplitDraw(0.0, 0.0)}
    for path, message in (
        (outside, repr(outside)),
        ("../secret.png", "captions.csv: "),
        ("x/../../secret.png", "captions.csv: "),
        ("link.png", "1 of 2 pictures of the split 'train' are links, or lie behind links, that lead out of"),
        ("sub/far.png", "1 of 2 pictures of the split 'train' are links, or lie behind links, that lead out of"),
    ):
        written(tmp_path, [("image", "caption"), ("000.png", "a"), (path, "b")])
        message_found = refused(tmp_path, **shares)
        assert message in message_found, path
        assert "data.outside=allow" in message_found
        (tmp_path / "photos" / "x").mkdir(exist_ok=True)
        allowed = source(tmp_path, outside="allow", **shares).load("train")
        assert allowed.images[1][0, -1, -1] in (250, 255), path
    written(tmp_path, [("image", "caption"), ("001.png", "a"), ("own.png", "b")])
    assert source(tmp_path, **shares).load("train").names == ["001.png", "own.png"]


def test_files_are_found_by_listing_each_folder_once(tmp_path, monkeypatch):
    names = [f"{n % 3}/{n}.png" for n in range(30)]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "0" / "folder.png").mkdir()
    (tmp_path / "0" / "broken.png").symlink_to(tmp_path / "nowhere")
    listed, scandir = [], os.scandir
    monkeypatch.setattr(files.os, "scandir", lambda place: (listed.append(place), scandir(place))[1])
    monkeypatch.setattr(files.os.path, "isfile", lambda path: (listed.append(path), os.path.exists(path))[1])
    assert look_up(tmp_path, names) == ([], [])
    assert len(listed) == 3
    monkeypatch.undo()
    found = look_up(tmp_path, ["0/folder.png", *names, "0/broken.png", "4/1.png", "0/1.png"])
    assert found == (["0/folder.png", "0/broken.png", "4/1.png", "0/1.png"], [])


def test_missing_files(tmp_path):
    as_table(tmp_path, NUMBERS)
    written(tmp_path, [("image", "caption"), *[(f"{n:03d}", "a") for n in range(3)]])
    message = refused(tmp_path, draw=SplitDraw(0.0, 0.0))
    assert (
        f"images: 3 of 3 pictures of the split 'train' are missing in {tmp_path / 'photos'}: 000, 001, 002" in message
    )
    assert "(did you mean 00" in message


def test_captions_that_are_empty(tmp_path, caplog):
    rows = [(name_of(n), f"caption {n}", " \n" if n % 2 else "more") for n in NUMBERS]
    written(tmp_path, [("image", "a", "b"), *rows])
    settings = {"columns": PhotoColumns(caption=["a", "b"]), "draw": SplitDraw(0.0, 0.0)}
    found = source(tmp_path, **settings).load("train")
    assert [len(found.captions_of(row)) for row in range(12)] == [2, 1] * 6
    assert "captions: 6 empty captions are left out" in caplog.text
    written(tmp_path, [("image", "a", "b"), *rows[:10], (name_of(10), "", ""), (name_of(11), " ", "")])
    assert "2 of 12 pictures have no caption: 010.png, 011.png" in refused(tmp_path, **settings)
    found = source(tmp_path, **settings, uncaptioned="leave_out").load("train")
    assert found.names == [name_of(n) for n in range(10)]
    assert found.image_index.max() == 9 or found.pairs[:, 0].max() == 9
    written(tmp_path, [("image", "a", "b"), (name_of(0), "", "")])
    assert "1 of 1 pictures have no caption" in refused(tmp_path, **settings, uncaptioned="leave_out")


def test_pictures_that_come_twice(tmp_path, caplog):
    """The same path is one picture; other names of the same bytes are warned of, within a split and across."""
    rows = [("000.png", "a", "train"), ("./000.png", "b", "train"), ("001.png", "c", "train"), ("002.png", "d", "val")]
    written(tmp_path, [("image", "caption", "split"), *rows])
    assert source(tmp_path).load("train").names == ["000.png", "001.png"]
    written(tmp_path, [("image", "caption", "split"), *rows, ("photo/../000.png", "e", "val")])
    assert "'..'" in refused(tmp_path)
    written(tmp_path, [("image", "caption", "split"), *rows, (".//000.png", "e", "val")])
    assert "another split in rows 4," in refused(tmp_path)
    for copy in ("copy", "other"):
        (tmp_path / "photos" / f"{copy}.png").write_bytes(picture(1))
    written(
        tmp_path, [("image", "caption", "split"), *rows, ("copy.png", "e", "train"), ("other.png", "f", "validation")]
    )
    data = source(tmp_path)
    splits = {split: data.load(split) for split in ("train", "val")}
    assert "1 of the 3 pictures of train are copies, byte for byte" in caplog.text
    assert "One picture: 001.png, copy.png" in caplog.text
    caplog.clear()
    warn_of_shared(splits)
    assert caplog.messages == [
        "1 of the 2 images of val are also in train, other.png for example: results on val are too good"
    ]


def test_unreadable_pictures(tmp_path, caplog):
    with_splits(tmp_path)
    (tmp_path / "photos" / "003.png").write_text("no picture")
    assert "1 of 6 files of the split 'train' in photos cannot be decoded: 003.png (not a picture)" in refused(tmp_path)
    found = source(tmp_path, unreadable="leave_out").load("train")
    assert found.names == [name_of(n) for n in (0, 1, 2, 4, 5)]
    assert found.pairs is None  # the shared caption has one picture left
    assert [[found.captions[t] for t in found.captions_of(row)] for row in (0, 3)] == [captions_of(0), captions_of(4)]
    assert "003.png (not a picture)" in caplog.text


def test_bad_tables(tmp_path):
    good = [("000.png", "a", "train"), ("001.png", "b", "val")]
    for header, rows, message in (
        (("path", "caption"), [("a", "b")], "image"),
        (("image", "captions"), [("a", "b")], "captions"),
        (("image", "caption"), [], "captions.csv has no rows"),
        (("image", "caption"), [("", "b"), ("a", "c"), (" ", "d")], "no path of a picture in rows 0, 2,"),
        (("image", "caption"), [("http://x.org/a.png", "b")], "rows 0, counted from 0 (the first: 'http:"),
        (("image", "caption"), [("a\nb", "b")], "line breaks in rows 0"),
        (("image", "caption", "split"), [*good, ("2", "c", "trian")], "rows 2, counted from 0 (the first: 'trian')"),
        (("image", "caption", "split"), [*good, ("2", "c", "")], "rows 2,"),
    ):
        written(tmp_path, [header, *rows])
        assert message in refused(tmp_path), message
    written(tmp_path, [("image", "caption", "split"), *good])
    message = refused(tmp_path, "test")
    assert "the split 'test'; it has 1 of train, 1 of val" in message
    assert "data.columns.split=null" in message
    assert "part" in refused(tmp_path, columns=PhotoColumns(split="part"))
    (tmp_path / "bad.jsonl").write_text('{"image": "000.png", "caption": "a"}\n{"image": "001.png", "caption": [1]}\n')
    assert "bad.jsonl: caption is no text in rows 1," in refused(tmp_path, table="bad.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"image": "000.png", "caption": "a \\ud83d"}\n')
    assert "half of a surrogate pair" in refused(tmp_path, table="bad.jsonl")
    (tmp_path / "bad.jsonl").write_text('{"image": 7, "caption": "a"}\n')
    assert "rows 0, counted from 0 (the first: '7')" in refused(tmp_path, table="bad.jsonl")


def test_bad_settings(tmp_path):
    as_table(tmp_path, NUMBERS)
    for changed, message in (
        ({"outside": "yes"}, "outside is 'yes'; choose one of 'refuse', 'allow'"),
        ({"uncaptioned": "skip"}, "uncaptioned is 'skip'"),
        ({"images": tmp_path / "none"}, "images: no such file or folder"),
        ({"images": tmp_path / "captions.csv"}, "is a file; give the folder"),
        ({"table": "none.csv"}, "table: no such file or folder"),
    ):
        with pytest.raises(InputError, match=message):
            source(tmp_path, **changed)
    assert Table(tmp_path / "captions.csv").images == tmp_path
