"""`vsehub extract`: killed and shared it writes the same bytes, and training on them is training on the pictures."""

import csv
import json
import signal
import time

import numpy as np
import pytest
import torch
import torchvision

from vsehub.encoders import ImageBackbone
from vsehub.extraction import folder

MODEL = ("data=scenes", "data.size=tiny", "image_encoder=torchvision", "image_encoder.model=resnet18")
PIECES = ("chunk=4", "batch_size=4")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A file of weights, so that no command draws its own."""
    torch.manual_seed(0)
    network = torchvision.models.resnet18()
    network(torch.rand(8, 3, 64, 64))
    path = tmp_path_factory.mktemp("weights") / "resnet18.pth"
    torch.save(network.state_dict(), path)
    return path


@pytest.fixture
def command(run_here, weights):
    """A function that runs `vsehub extract` in this process, in a folder of its own, and returns what it prints."""

    def run(*arguments, status=0, model=MODEL):
        given = (f"image_encoder.weights={weights}",) if model is MODEL else ()
        return run_here("extract", *model, *given, *arguments, status=status)

    return run


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "manifest.json"}


def manifest(folder):
    return json.loads((folder / "manifest.json").read_text())


@pytest.mark.long
def test_killed_it_goes_on_and_the_bytes_are_the_same(command, vsehub, weights, tmp_path):
    command(*PIECES, "out=unbroken")
    given = (*MODEL, *PIECES, f"image_encoder.weights={weights}", "out=killed")
    process = vsehub("extract", *given, cwd=tmp_path, start=True)
    parts = tmp_path / "killed" / "parts"
    while len(list(parts.glob("*-*.npz"))) < 5:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path.name: path.stat().st_mtime_ns for path in parts.glob("*-*.npz")}
    assert 5 <= len(kept) < 40
    assert not (tmp_path / "killed" / "manifest.json").exists()
    said = command(*PIECES, "out=killed", "dtype=float16", status=2)
    assert "unfinished work of another command (other dtype)" in said
    assert {path.name: path.stat().st_mtime_ns for path in parts.glob("*-*.npz")} == kept
    settings = (parts / "settings.json").read_text()
    command(*PIECES, "out=killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "unbroken")
    assert manifest(tmp_path / "killed")["run"]["images"] == 160 - 4 * len(kept)
    parts.mkdir()  # as if it had been killed when all was written and its parts were not removed yet
    (parts / "settings.json").write_text(settings)
    (parts / "train-000000000.part.npz").touch()
    assert "already holds this extraction" in command(*PIECES, "out=killed", "verify=true")
    assert not parts.exists()


@pytest.mark.long
def test_random_weights_are_the_same_when_a_killed_command_goes_on(run_here, vsehub, tmp_path):
    given = (*MODEL, *PIECES, "image_encoder.pretrained=false")
    run_here("extract", *given, "out=unbroken")
    process = vsehub("extract", *given, "out=killed", cwd=tmp_path, start=True)
    parts = tmp_path / "killed" / "parts"
    while len(list(parts.glob("*-*.npz"))) < 5:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    run_here("extract", *given, "out=killed")
    assert contents(tmp_path / "killed") == contents(tmp_path / "unbroken")
    assert manifest(tmp_path / "killed")["run"]["images"] < 160
    run_here("extract", *given, "out=other", "seed=1")
    assert contents(tmp_path / "other") != contents(tmp_path / "unbroken")


def test_precision(command, tmp_path):
    """What is not said is float32, and other words are refused."""
    for out, settings in (("plain", ()), ("said", ("precision=32",)), ("rounded", ("precision=bf16",))):
        command("splits=[val]", *settings, f"out={out}")
    assert contents(tmp_path / "plain") == contents(tmp_path / "said")
    assert contents(tmp_path / "plain")["dev_ims.npy"] != contents(tmp_path / "rounded")["dev_ims.npy"]
    assert manifest(tmp_path / "rounded")["settings"]["precision"] == "bf16"
    assert "precision is 'half'; choose one of '32', 'bf16', 'auto'" in command("precision=half", "out=no", status=2)


@pytest.mark.long
def test_two_processes_share_the_work(command, vsehub, weights, tmp_path):
    command(*PIECES, "out=one")
    given = (*MODEL, *PIECES, f"image_encoder.weights={weights}", f"out={tmp_path / 'two'}", "patience=200")
    running = []
    for rank in (0, 1):
        (tmp_path / str(rank)).mkdir()
        variables = {"RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        running.append(vsehub("extract", *given, cwd=tmp_path / str(rank), start=True, **variables))
    said = []
    for rank, process in enumerate(running):
        status = process.wait(timeout=240)
        said.append((tmp_path / str(rank) / "output.txt").read_text())
        assert status == 0, said[-1]
    assert contents(tmp_path / "two") == contents(tmp_path / "one")
    assert "process 1 of 2 has finished its part: 80 images" in said[1]
    assert manifest(tmp_path / "two")["run"] | {"images": 80, "processes": 2} == manifest(tmp_path / "two")["run"]


def test_another_process_finishes_the_same_extraction_first(command, vsehub, weights, tmp_path, monkeypatch):
    given = (*MODEL, *PIECES, "splits=[val]", f"image_encoder.weights={weights}")
    whole = folder.assemble

    def late(*arguments):
        vsehub("extract", *given, "out=twice", cwd=tmp_path)  # finds all chunks and takes them away
        return whole(*arguments)

    monkeypatch.setattr(folder, "assemble", late)
    assert "another process has finished it" in command(*PIECES, "splits=[val]", "out=twice")
    assert sorted(path.name for path in (tmp_path / "twice").iterdir()) == [
        *("dev_caps.txt", "dev_ids.txt", "dev_ims.npy", "manifest.json")
    ]


@pytest.mark.long
def test_training_on_features_is_training_with_the_frozen_network(command, vsehub, weights, tmp_path):
    command("out=features")
    small = ("embedding_dim=16", "text_encoder.word_dim=8", "loader.batch_size=64", "callbacks.warmup.steps=12")
    small = (*small, "trainer.max_epochs=2", "trainer.precision=32-true", "trainer.accelerator=cpu", "loss=hal")
    pictures = (*MODEL, f"image_encoder.weights={weights}", f"hydra.run.dir={tmp_path / 'pictures'}")
    vsehub("train", *pictures, *small, cwd=tmp_path)
    stored = ("data=precomp", f"data.root={tmp_path / 'features'}", f"hydra.run.dir={tmp_path / 'stored'}")
    vsehub("train", *stored, *small, cwd=tmp_path)

    logged = [list(csv.DictReader((tmp_path / run / "metrics.csv").open())) for run in ("pictures", "stored")]
    for ours, theirs in zip(*logged, strict=True):
        assert float(ours["train/loss"]) == pytest.approx(float(theirs["train/loss"]), rel=1e-5)
        assert float(ours["val/rsum"]) == pytest.approx(float(theirs["val/rsum"]), abs=1)
    states = [
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("pictures", "stored")
    ]
    renamed = {
        name.replace("image_encoder.head.", "image_encoder."): value
        for name, value in states[0].items()
        if ".backbone." not in name
    }
    assert renamed.keys() == states[1].keys()
    for name, value in states[1].items():
        torch.testing.assert_close(renamed[name], value, rtol=1e-5, atol=1e-5, msg=name)

    frozen = {name: value for name, value in states[0].items() if ".backbone." in name}
    file = torch.load(weights, weights_only=True)
    assert all(torch.equal(value, file[name.split("network.")[1]]) for name, value in frozen.items())
    weights.rename(tmp_path / "away.pth")  # a checkpoint is enough to measure with
    try:
        vsehub("evaluate", f"checkpoint={tmp_path / 'pictures' / 'checkpoints' / 'best.safetensors'}", cwd=tmp_path)
    finally:
        (tmp_path / "away.pth").rename(weights)


def test_regions_in_half_precision(command, weights, tmp_path):
    command("regions=2", "dtype=float16", "splits=[val]", "captions=2", "out=regions")
    stored = np.load(tmp_path / "regions" / "dev_ims.npy")
    assert sorted(contents(tmp_path / "regions")) == ["dev_caps.txt", "dev_ids.txt", "dev_ims.npy"]
    assert (stored.shape, stored.dtype) == ((32, 4, 512), np.float16)
    record = manifest(tmp_path / "regions")
    assert record["settings"]["captions"] == 2
    backbone = ImageBackbone((3, 64, 64), "resnet18", weights=str(weights)).backbone
    assert record["settings"]["weights"] == backbone.weights_hash()
    assert len((tmp_path / "regions" / "dev_caps.txt").read_text().splitlines()) == 64


def test_what_is_refused(command, weights, tmp_path, monkeypatch):
    broken = torch.load(weights, weights_only=True)
    broken["layer4.1.bn2.weight"][3] = float("nan")
    torch.save(broken, tmp_path / "nan.pth")
    said = command("image_encoder.weights=nan.pth", "out=a", status=2)
    assert "train: of the features, those of scene-train-000000, scene-train-000001, " in said
    assert "hold NaN" in said
    assert "ImageCNN is not a pretrained network; give image_encoder=resnet152" in command(
        "out=b", model=("data=scenes", "data.size=tiny"), status=2
    )
    assert "data.json is not set" in command("out=b", model=(), status=2)
    assert "dtype is 'int8'" in command("out=b", "dtype=int8", status=2)
    assert "splits is 'dev'; choose one of 'train', 'val', 'test'" in command("out=b", "splits=[dev]", status=2)
    assert not (tmp_path / "b").exists()
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert "overwrite=true does not work with 2 processes" in command("out=b", "overwrite=true", status=2)
    assert "for 0.5 seconds no other process has finished a chunk" in command(
        *PIECES, "out=b", "splits=[val]", "patience=0.5", status=2
    )
