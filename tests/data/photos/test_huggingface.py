"""Datasets of Hugging Face on disk: what save_to_disk wrote, and imagefolders with metadata."""

import csv
import json
import logging
import pickle
import shutil
import sys

import numpy as np
import pytest
from photo_files import SIDE, arranged, as_dataset, as_folder, as_shards, as_table, captions_of, name_of

from vsehub.checks import InputError
from vsehub.data import HuggingFace, PhotoColumns, SplitDraw, Table, WebDataset

NUMBERS = list(range(12))
ALL = {"draw": SplitDraw(0.0, 0.0)}


def source(folder, **changed):
    settings = {"size": SIDE, "resize": SIDE, "cache": str(folder.parent / "cache")}
    return HuggingFace(folder, **arranged(settings | changed))


def refused(folder, split="train", **changed):
    with pytest.raises(InputError) as caught:
        source(folder, **changed).load(split)
    return str(caught.value)


def require_same(one, other):
    for split in ("train", "val", "test"):
        a, b = one.load(split), other.load(split)
        assert a.names == b.names
        assert a.captions == b.captions
        np.testing.assert_array_equal(a.images[:], b.images[:])
        np.testing.assert_array_equal(a.image_index, b.image_index)
        np.testing.assert_array_equal(a.training_pairs(), b.training_pairs())
        assert (a.pairs is None) == (b.pairs is None)
        assert a.fingerprint() == b.fingerprint()


@pytest.fixture
def saved(tmp_path):
    pytest.importorskip("datasets")

    def save(dataset, name="saved"):
        dataset.save_to_disk(tmp_path / name)
        return tmp_path / name

    return save


def test_the_same_pictures_from_every_source(tmp_path, saved):
    """Table, shards, saved dataset and imagefolder: equal pixels, captions, splits and fingerprints."""
    cache = str(tmp_path / "cache")
    settings = arranged({"size": SIDE, "resize": SIDE, "cache": cache, "draw": SplitDraw(0.25, 0.25, 3)})
    table = Table(as_table(tmp_path, NUMBERS), tmp_path / "photos", **settings)
    assert table.load("train").pairs is not None
    require_same(table, WebDataset(str(as_shards(tmp_path / "shards", NUMBERS)), caption="captions", **settings))
    require_same(table, HuggingFace(saved(as_dataset(NUMBERS)), **settings))
    folder = as_folder(tmp_path / "imagefolder", NUMBERS)
    lines = [{"file_name": name_of(n), "caption": captions_of(n)} for n in NUMBERS]
    (folder / "metadata.jsonl").write_text("\n".join(map(json.dumps, lines)))
    require_same(table, HuggingFace(folder, **settings))


def test_parts_are_splits(tmp_path, saved, caplog):
    import datasets

    parts = {"train": NUMBERS[:6], "validation": NUMBERS[6:9], "test": NUMBERS[9:], "extra": NUMBERS[:2]}
    folder = saved(datasets.DatasetDict({name: as_dataset(numbers) for name, numbers in parts.items()}))
    data = source(folder)
    assert data.name == "saved"
    caplog.set_level(logging.INFO)
    for split, part in (("train", "train"), ("val", "validation"), ("test", "test")):
        found = data.load(split)
        assert len(found.images) == len(parts[part])
        assert found.images[:][:, 0, -1, -1].tolist() == [5 * n for n in parts[part]]
    assert "saved: members that are no split are not used: extra" in caplog.text
    drawn = source(folder, columns=PhotoColumns(split=None), **ALL).load("train")
    assert len(drawn.images) == 14
    assert drawn.names[-1] == "extra/001.png"  # two members have pictures of one name
    shutil.rmtree(folder)
    saved(datasets.DatasetDict({"train": as_dataset(NUMBERS), "test": as_dataset(NUMBERS[:1])}))
    message = refused(folder, "val")
    assert "saved has no pictures of the split 'val'; it has 12 of train, 1 of test." in message
    assert "data.columns.split=null" in message
    shutil.rmtree(folder)
    saved(datasets.DatasetDict({"one": as_dataset(NUMBERS)}))
    assert "no member of" in refused(folder)


def test_columns(tmp_path, saved):
    """Other names, several captions, plain bytes, a class label as split; rows that were chosen before saving."""
    import datasets

    dataset = as_dataset(NUMBERS).add_column("part", ["train", "valid", "test"] * 4)
    dataset = dataset.class_encode_column("part").add_column("more", [f"more {n}" for n in NUMBERS])
    dataset = dataset.rename_column("image", "picture").select([3, 1, 5, 0])
    columns = PhotoColumns("picture", ["caption", "more"], "part")
    folder = saved(dataset)
    found = source(folder, columns=columns).load("train")
    assert found.names == ["003.png", "000.png"]
    assert {found.captions[t] for t in found.captions_of(1)} == {*captions_of(0), "more 0"}
    assert pickle.loads(pickle.dumps(found.images))[:].tolist() == found.images[:].tolist()
    plain = datasets.Dataset.from_dict(
        {
            "image": [
                one["bytes"] for one in as_dataset([1, 2]).cast_column("image", datasets.Image(decode=False))["image"]
            ],
            "caption": ["a", "b"],
        },
        features=datasets.Features({"image": datasets.Value("binary"), "caption": datasets.Value("string")}),
    )
    found = source(saved(plain, "plain"), **ALL).load("train")
    assert found.names == ["row-000000", "row-000001"]
    assert found.images[:][:, 0, -1, -1].tolist() == [5, 10]
    assert "has no column 'captoin' (did you mean caption?); expected one" in refused(
        folder, columns=PhotoColumns("picture", "captoin")
    )
    assert "has no column 'prat' (did you mean part?)" in refused(folder, columns=PhotoColumns("picture", split="prat"))
    assert "holds List" in refused(folder, columns=PhotoColumns("caption"))
    assert "row 0, counted from 0, holds '1' in the column part" in refused(
        folder, columns=PhotoColumns("picture", "part")
    )


def test_saved_datasets_that_are_damaged(tmp_path, saved):
    dataset = as_dataset(NUMBERS)
    folder = saved(dataset)
    state = json.loads((folder / "state.json").read_text())
    for name in ("../../etc/passwd", "/etc/passwd", 3, None):
        (folder / "state.json").write_text(json.dumps(state | {"_data_files": [{"filename": name}]}))
        assert "is damaged, or names files elsewhere" in refused(folder), name
    (folder / "state.json").write_text("{")
    assert "is damaged, or names files elsewhere" in refused(folder)
    (folder / "state.json").write_text(json.dumps(state))
    (arrow,) = folder.glob("*.arrow")
    content = arrow.read_bytes()
    arrow.write_bytes(content[:300])
    assert "cannot be read as a saved dataset" in refused(folder)
    arrow.write_bytes(content)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["../elsewhere"]}))
    assert "names folders elsewhere" in refused(folder)
    table = dataset.data.table.to_pylist()
    for row in (1, 5):
        table[row]["image"] = {"bytes": None, "path": "/etc/passwd"}
    import datasets
    import pyarrow as pa

    lacking = datasets.Dataset(pa.Table.from_pylist(table, dataset.data.table.schema))
    lacking._data.table  # noqa: B018
    from unittest import mock

    with mock.patch.object(datasets.features.Image, "embed_storage", lambda self, storage, *rest, **more: storage):
        bad = saved(lacking, "lacking")
    assert "rows 1, 5, counted from 0, hold no picture, or only the path of one" in refused(bad)


def test_imagefolders(tmp_path):
    """Read without the package; with metadata for all, or for each split."""
    folder = tmp_path / "pets"
    for part, numbers in (("train", NUMBERS[:6]), ("val", NUMBERS[6:9]), ("test", NUMBERS[9:])):
        as_folder(folder / part, numbers)
        with (folder / part / "metadata.csv").open("w", newline="") as file:
            csv.writer(file).writerows(
                [("file_name", "text"), *[(name_of(n), caption) for n in numbers for caption in captions_of(n)]]
            )
    data = source(folder, columns=PhotoColumns(caption="text"))
    assert data.load("val").names == ["val/006.png", "val/007.png", "val/008.png"]
    assert data.load("train").images[:][:, 0, -1, -1].tolist() == [0, 5, 10, 15, 20, 25]
    (folder / "test" / "metadata.csv").write_text("file_name,text\n../val/006.png,a\n")
    assert "'../val/006.png'" in refused(folder, columns=PhotoColumns(caption="text"))
    shutil.rmtree(folder / "test")
    message = refused(folder, "test", columns=PhotoColumns(caption="text"))
    assert "pets has no pictures of the split 'test'; it has 6 of train, 3 of val" in message
    assert len(source(folder, columns=PhotoColumns(caption="text", split=None), **ALL).load("train").images) == 9
    shutil.rmtree(folder)
    as_folder(folder, NUMBERS)
    assert f"folder: {folder} is not a folder that datasets' save_to_disk wrote" in refused(folder)


def test_without_the_package(tmp_path, saved, monkeypatch):
    folder = saved(as_dataset(NUMBERS))
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert "'vsehub[datasets]'" in refused(folder)
