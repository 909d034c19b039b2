"""Photos as people have them through whole commands: trained, continued, measured, searched and extracted."""

import pytest
import torch
from broken_off import stopped
from photo_files import photos, write_saved, write_shards, write_table
from run_files import record, rows

from vsehub.data import Table

TINY = (
    *("image_encoder=image_cnn", "image_encoder.width=4", "embedding_dim=16"),
    "data.pictures.size=32",
    *("text_encoder.word_dim=8", "loader.batch_size=16", "loader.min_count=1", "callbacks.warmup.steps=2", "loss=hal"),
    *("trainer.precision=32-true", "trainer.accelerator=cpu", "bank=memory", "bank.fraction=0.5", "bank.k=3"),
)
SPLITS = {"train": 24, "val": 8, "test": 8}


@pytest.mark.long
def test_train_resume_evaluate_and_search(run_here, vsehub, tmp_path):
    """The three sources give one run, continuing gives an unbroken one, and shared captions count for all pictures."""
    pytest.importorskip("datasets")
    made = photos(40, lambda number: "train" if number < 24 else "val" if number < 32 else "test")
    for write in (write_table, write_shards, write_saved):
        write(tmp_path, made)

    def train(name, *given):
        vsehub("train", *given, *TINY, f"hydra.run.dir=runs/{name}", cwd=tmp_path)
        return tmp_path / "runs" / name

    table = train("table", "data=table", "data.table=captions.csv", "data.images=photos", "trainer.max_epochs=2")
    tars = [f"data.splits.{split}={split}-*.tar" for split in SPLITS]
    shards = train("shards", "data=webdataset", *tars, "data.caption=captions", "trainer.max_epochs=1")
    saved = train("saved", "data=huggingface", "data.folder=saved", "trainer.max_epochs=1")
    data = record(table)["data"]
    assert {split: one["images"] for split, one in data.items()} == SPLITS
    assert record(shards)["data"] == record(saved)["data"] == data
    first = [rows(run)[0] for run in (table, shards, saved)]
    for column in ("train/loss", "val/rsum"):
        assert len({float(one[column]) for one in first}) == 1, column

    vsehub("train", f"resume={stopped(shards)}", "trainer.max_epochs=2", cwd=tmp_path)
    unbroken, continued = (
        torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for run in (table, shards)
    )
    assert all(torch.equal(value, continued[key]) for key, value in unbroken.items())

    for name in ("photos", "captions.csv"):
        (tmp_path / name).rename(tmp_path / f"moved_{name}")
    changed = ("data.table=moved_captions.csv", "data.images=moved_photos")
    said = run_here("evaluate", f"checkpoint={table}/checkpoints/best.safetensors", *changed, "criterion=csls")
    texts = len({caption for photo in made if photo.split == "test" for caption in photo.captions})
    assert f"test: 8 images, {texts} texts, protocol single, criterion csls" in said
    assert "039.png" in run_here("search", f"checkpoint={saved}/checkpoints/best.safetensors", "caption of", "k=8")


def test_a_listing_is_read_once(tmp_path, run_here, monkeypatch):
    """The command fails only when the words of the captions are counted."""
    reads, read = [], Table.read_listing
    monkeypatch.setattr(Table, "read_listing", lambda self: reads.append(self.place) or read(self))
    table = write_table(tmp_path, photos()).place
    given = "data=table", f"data.table={table}", f"data.images={tmp_path}/photos", "loader.min_count=999"
    assert "min_count" in run_here("train", *TINY, *given, status=2)
    assert len(reads) == 1
