"""Training on pairs of vectors through the commands: adapters of a frozen model, and plain encoders of vectors."""

import json
import re
import shutil
from unittest import mock

import numpy as np
import pytest
from broken_off import stopped
from run_files import rows

import vsehub
from vsehub.io.files import MARK

TRAINED = [
    "experiment=adapter",
    "loss=hal",
    "loss.epsilon=0.3",
    "bank=memory",
    "bank.fraction=1",
    "bank.k=5",
    "scheduler.step_size=2",
]
SIZES = {"train": (0, 120), "val": (120, 160), "test": (160, 200)}


@pytest.fixture(scope="module")
def frozen(tmp_path_factory):
    """Made-up vectors of a frozen model: 200 images of two texts each, with a gap between the modalities and a hub."""
    folder = tmp_path_factory.mktemp("frozen")
    generator = np.random.default_rng(0)
    images = generator.normal(size=(200, 16))
    texts = np.repeat(images, 2, axis=0) + 0.8 * generator.normal(size=(400, 16))
    np.save(folder / "images.npy", (images + 2 * np.eye(16)[0]).astype(np.float16))
    np.save(folder / "texts.npy", (texts - 2 * np.eye(16)[0] + np.eye(16)[1]).astype(np.float16))
    for split, (first, last) in SIZES.items():
        lines = [f"{2 * image + number},{image}" for image in range(first, last) for number in range(2)]
        (folder / f"{split}.csv").write_text("\n".join(["query,item", *lines]) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(frozen, vsehub):
    """The folder of a run of three epochs over them."""
    vsehub("train", *TRAINED, *files(frozen), "trainer.max_epochs=3", "hydra.run.dir=run", cwd=frozen)
    return frozen / "run"


def files(folder):
    tables = [f"data.splits.{split}={folder / split}.csv" for split in SIZES]
    return [f"data.images={folder / 'images.npy'}", f"data.texts={folder / 'texts.npy'}", *tables]


def read(path):
    return json.loads(path.read_text())


def test_it_trains_and_resumes_as_any_encoder(run, frozen, vsehub, tmp_path):
    """Also with the data moved."""
    record = read(run / "run.json")
    assert (record["status"], record["label"], record["architecture"]) == ("finished", "hal+mb", "adapter+adapter")
    assert rows(run)[2]["bank/pairs"] == "240.0", "all training pairs"
    vsehub("train", *TRAINED, *files(frozen), "trainer.max_epochs=2", "hydra.run.dir=broken", cwd=tmp_path)
    stopped(tmp_path / "broken")
    shutil.copy(frozen / "images.npy", tmp_path / "moved.npy")
    vsehub("train", "resume=broken", "data.images=moved.npy", "trainer.max_epochs=3", cwd=tmp_path)
    assert rows(tmp_path / "broken") == rows(run)
    resumed = read(tmp_path / "broken" / "run.json")
    assert resumed["metrics"] == record["metrics"]
    assert "hydra.run.dir=broken" in resumed["command"], "the command of the start, which chose the settings"
    log = (tmp_path / "broken" / "train.log").read_text()
    assert re.findall(r"optimizer\.lr ([\d.e-]+)", log) == ["0.001"] * 2, "as configured"
    before = stopped(tmp_path / "broken").joinpath("run.json").read_bytes()
    assert "3 epochs" in vsehub("train", "resume=broken", "trainer.max_epochs=2", cwd=tmp_path, status=2).err
    assert (tmp_path / "broken" / "run.json").read_bytes() == before, "the run can still continue"


def test_a_step_of_rate_0_leaves_the_frozen_model(frozen, vsehub, tmp_path):
    settings = ("optimizer.lr=1e-12", "trainer.max_epochs=1", "hydra.run.dir=still")
    vsehub("train", *TRAINED[:2], *files(frozen), *settings, cwd=tmp_path)
    images, texts = (np.load(frozen / f"{side}.npy").astype(np.float64) for side in ("images", "texts"))
    images, texts = (
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (images[160:], texts[320:])
    )
    r1 = 100 * np.mean((texts @ images.T).argmax(axis=1) == np.arange(80) // 2)
    assert read(tmp_path / "still" / "run.json")["metrics"]["test/t2i/r1"] == pytest.approx(r1)


def test_encoded_vectors_rank_as_the_checkpoint_does(run, frozen, run_here, undrawn, tmp_path):
    best = run / "checkpoints" / "best.safetensors"
    run_here("evaluate", f"checkpoint={best}", "criterion=csls", "reference=train", f"out={tmp_path}")
    measured = read(next(tmp_path.glob("test-single-csls-inductive-*.json")))["metrics"]
    images, texts = np.load(frozen / "images.npy"), np.load(frozen / "texts.npy")
    np.savez(tmp_path / "items.npz", vectors=images[160:], ids=np.array([f"image-{row}" for row in range(160, 200)]))
    np.save(tmp_path / "queries.npy", texts[320:])
    np.save(tmp_path / "reference.npy", texts[:240])
    run_here("encode", f"checkpoint={best}", "images=items.npz::vectors", "texts=queries.npy", "out=test")
    run_here("encode", f"checkpoint={best}", "texts=reference.npy", "out=train")
    model = vsehub.load(best, device="cpu")
    encoded = model.similarity.vectors(model.encode_texts(texts[320:].astype(np.float32))).numpy()
    np.testing.assert_allclose(np.load(tmp_path / "test" / "texts.npy"), encoded, atol=1e-6)
    truth = [f"{row},image-{160 + row // 2}" for row in range(80)]
    (tmp_path / "truth.csv").write_text("\n".join(["query,item", *truth]) + "\n")
    sides = ("queries=test/texts.npy", "items=test/images.npy", "item_ids=test/image_ids.txt", "truth=truth.csv")
    run_here("rerank", *sides, "reference=train/texts.npy", "criterion=csls", "out=ranked")
    assert f'"r1": {measured["t2i/r1"]}' in (tmp_path / "ranked" / "result.json").read_text()


def test_what_encode_refuses(run, frozen, trained, run_here, tmp_path):
    best = f"checkpoint={run / 'checkpoints' / 'best.safetensors'}"
    images = f"images={frozen / 'images.npy'}"
    np.save(tmp_path / "short.npy", np.ones((3, 8), dtype=np.float32))
    np.save(tmp_path / "zero.npy", np.zeros((3, 16), dtype=np.float32))
    captions = f"checkpoint={trained / 'checkpoints' / 'best.safetensors'}"
    for arguments, named in (
        ((images, "out=new"), "checkpoint"),
        ((best, images), "out"),
        ((best, "out=new"), "images=FILE"),
        ((best, "images=absent.npy", "out=new"), "absent.npy"),
        ((best, "texts=short.npy", "out=new"), "vectors of 8 numbers"),
        ((best, "texts=zero.npy", "out=new"), "zero.npy"),
        ((captions, images, "out=new"), "images of shape (3, 64, 64)"),
        ((captions, f"texts={frozen / 'texts.npy'}", "out=new"), "texts of shape None"),
    ):
        assert named in run_here("encode", *arguments, status=2), arguments
        assert not (tmp_path / "new").exists()
    run_here("encode", best, images, "out=new")
    assert "overwrite=true" in run_here("encode", best, images, "out=new", status=2)


@pytest.mark.parametrize("command", ["encode", "rerank"])
def test_a_full_disk_leaves_the_earlier_result(run, frozen, run_here, undrawn, tmp_path, command):
    """Full at each file in turn. The last is the mark: without it the new files are unfinished."""
    settings = {
        "encode": (f"checkpoint={run / 'checkpoints' / 'best.safetensors'}", f"images={frozen / 'images.npy'}"),
        "rerank": (f"queries={frozen / 'texts.npy'}", f"items={frozen / 'images.npy'}", "normalize=true"),
    }[command]
    run_here(command, *settings, "out=out")
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    for count in range(len(before) + 1):
        with mock.patch("os.fsync", side_effect=[*[None] * count, OSError(28, "No space left on device")]):
            assert "No space left" in run_here(command, *settings, "out=out", "overwrite=true", status=1)
        now = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        finished = read(tmp_path / "out" / MARK)["finished"]
        assert (now == before) == finished == (count < len(before))


def test_a_checkpoint_is_measured_on_data_that_moved(run, frozen, run_here, tmp_path):
    """The table of training is not needed; vectors of another size are refused."""
    best = f"checkpoint={run / 'checkpoints' / 'best.safetensors'}"
    shutil.copy(frozen / "images.npy", tmp_path / "moved.npy")
    moved = ["data.images=moved.npy", "data.splits.val=null", "data.splits.train=null"]
    run_here("evaluate", best, *moved, "out=again")
    again, first = (
        read(next(folder.glob("test-single-nns-*"))) for folder in (tmp_path / "again", run / "evaluations")
    )
    assert again["metrics"] == first["metrics"]
    np.save(tmp_path / "moved.npy", np.load(frozen / "images.npy")[:, :9])
    assert "features of shape (9,)" in run_here("evaluate", best, *moved, "out=other", status=2)


def test_shares_and_what_cannot_be(run, frozen, run_here, tmp_path):
    """One table split by shares; vectors are no captions, and captions no vectors."""
    data = ["data=pairs", *files(frozen)[:2], f"data.pairs={frozen / 'train.csv'}", "embedding_dim=16", "loss=max"]
    run_here("train", *data, "trainer.max_epochs=1", "hydra.run.dir=shares")
    assert sum(split["captions"] for split in read(tmp_path / "shares" / "run.json")["data"].values()) == 240
    best = f"checkpoint={run / 'checkpoints' / 'best.safetensors'}"
    assert "texts" in run_here("search", best, "a dog", status=2)
    assert "TextGRU" in run_here("train", *data, "text_encoder=text_gru", "hydra.run.dir=gru", status=2)
    assert "data.texts is not set" in run_here("train", "data=pairs", "data.images=a.npy", status=2)
