"""Photos as people have them through whole commands: trained, continued, measured, searched and extracted."""

import csv
import json

import pytest
import torch
from photo_files import add
from PIL import Image
from run_files import record

from vsehub.data import Scenes

TINY = (
    *("image_encoder=image_cnn", "image_encoder.width=4", "embedding_dim=16"),
    *("data.pictures.size=32", "data.pictures.resize=32"),
    *("text_encoder.word_dim=8", "loader.batch_size=16", "loader.min_count=1", "callbacks.warmup.steps=2", "loss=hal"),
    *("trainer.precision=32-true", "trainer.accelerator=cpu", "bank=memory", "bank.fraction=0.5", "bank.k=3"),
)
SPLITS = {"train": 24, "val": 8, "test": 8}


def written(folder):
    """Scenes as png files and a csv of their captions; one caption of every picture is that of the next one too."""
    (folder / "photos").mkdir()
    rows = []
    for split, count in SPLITS.items():
        scenes = Scenes("tiny").load(split)
        for number in range(count):
            name = f"{split}-{number:02d}.png"
            Image.fromarray(scenes.images[number].transpose(1, 2, 0)).save(folder / "photos" / name)
            captions = scenes.captions[5 * number : 5 * number + 5]
            rows += [(name, caption, split) for caption in (*captions, scenes.captions[5 * ((number + 1) % count)])]
    with (folder / "captions.csv").open("w", newline="") as file:
        csv.writer(file).writerows([("image", "caption", "split"), *rows])
    return rows


def as_shards(folder, rows):
    import tarfile

    for split in SPLITS:
        with tarfile.open(folder / f"{split}.tar", "w") as tar:
            for name in dict.fromkeys(name for name, _, of in rows if of == split):
                add(tar, name, (folder / "photos" / name).read_bytes())
                captions = [caption for one, caption, _ in rows if one == name]
                add(tar, name.replace(".png", ".json"), json.dumps({"caption": captions}).encode())


def as_dataset(folder, rows):
    datasets = pytest.importorskip("datasets")
    parts = {}
    for split in SPLITS:
        names = list(dict.fromkeys(name for name, _, of in rows if of == split))
        captions = [[caption for one, caption, _ in rows if one == name] for name in names]
        features = datasets.Features(
            {"image": datasets.Image(), "caption": datasets.Sequence(datasets.Value("string"))}
        )
        parts[split] = datasets.Dataset.from_dict(
            {"image": [str(folder / "photos" / name) for name in names], "caption": captions}, features=features
        )
    datasets.DatasetDict(parts).save_to_disk(folder / "dataset")


@pytest.mark.long
def test_train_resume_evaluate_and_search(run_here, vsehub, tmp_path):
    """The three sources give one run, continuing gives an unbroken one, and shared captions count for all pictures."""
    rows = written(tmp_path)
    as_shards(tmp_path, rows)
    as_dataset(tmp_path, rows)

    def train(name, *given):
        vsehub("train", *given, *TINY, f"hydra.run.dir={name}", cwd=tmp_path)
        assert record(tmp_path / name)["status"] == "finished"

    train("table", "data=table", "data.table=captions.csv", "data.images=photos", "trainer.max_epochs=2")
    shards = [f"data.splits.{split}={split}.tar" for split in SPLITS]
    train("shards", "data=webdataset", *shards, "data.caption=caption", "trainer.max_epochs=1")
    train("saved", "data=huggingface", "data.folder=dataset", "trainer.max_epochs=1")
    data = record(tmp_path / "table")["data"]
    assert {split: one["images"] for split, one in data.items()} == SPLITS
    assert record(tmp_path / "shards")["data"] == record(tmp_path / "saved")["data"] == data
    epochs = [next(csv.DictReader((tmp_path / run / "metrics.csv").open())) for run in ("table", "shards", "saved")]
    for column in ("train/loss", "val/rsum"):
        assert len({float(one[column]) for one in epochs}) == 1, column

    (tmp_path / "shards" / "run.json").write_text(json.dumps(record(tmp_path / "shards") | {"status": "stopped"}))
    vsehub("train", "resume=shards", "trainer.max_epochs=2", cwd=tmp_path)
    unbroken, continued = (
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("table", "shards")
    )
    assert unbroken.keys() == continued.keys()
    assert all(torch.equal(value, continued[key]) for key, value in unbroken.items())

    (tmp_path / "moved").mkdir()
    for name in ("photos", "captions.csv"):
        (tmp_path / name).rename(tmp_path / "moved" / name)
    checkpoint = "checkpoint=table/checkpoints/best.safetensors"
    changed = ("data.table=moved/captions.csv", "data.images=moved/photos")
    said = run_here("evaluate", checkpoint, *changed, "criterion=csls", "reference=train")
    texts = len({caption for _, caption, split in rows if split == "test"})
    assert f"test: 8 images, {texts} texts, protocol single, criterion csls" in said
    assert "test-" in run_here("search", "checkpoint=saved/checkpoints/best.safetensors", "a red square", "k=2")
