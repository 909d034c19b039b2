"""`vsehub extract`: killed it continues to the same bytes, and training on them is training on the pictures."""

import csv
import json
import signal
import time

import numpy as np
import pytest
import torch
import torchvision

from vsehub.encoders import ImageBackbone
from vsehub.encoders.pretrained.networks import weights_hash
from vsehub.io.files import alone

MODEL = ("data=scenes", "data.size=tiny", "image_encoder=torchvision", "image_encoder.model=resnet18")


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
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".npy", ".txt")}


@pytest.mark.long
def test_killed_it_continues_to_the_same_bytes(run_here, vsehub, tmp_path):
    """Also with random weights, which are drawn anew."""
    given = (*MODEL, "batch_size=4", "image_encoder.pretrained=false")
    run_here("extract", *given, "out=unbroken")
    process = vsehub("extract", *given, "out=killed", cwd=tmp_path, start=True)
    chunks = tmp_path / "killed" / ".chunks"
    while len(list(chunks.glob("*.npy"))) < 5:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in chunks.glob("*.npy")}
    assert 5 <= len(kept) < 40
    assert not (tmp_path / "killed" / "manifest.json").exists()
    assert "another dtype" in run_here("extract", *given, "out=killed", "dtype=float16", status=2)
    last, *_ = sorted(kept)[::-1]
    np.save(last, np.load(last) + 1)  # is joined as it is, and not computed again
    run_here("extract", *given, "out=killed")
    found, expected = contents(tmp_path / "killed"), contents(tmp_path / "unbroken")
    assert found.keys() == expected.keys()
    assert [name for name in found if found[name] != expected[name]] == ["train_ims.npy"]
    assert not chunks.exists()
    run_here("extract", *given, "out=killed", "overwrite=true")
    assert contents(tmp_path / "killed") == expected


def test_two_processes_do_not_share_a_folder(command, tmp_path):
    with alone(tmp_path / "out", "extracting"):
        assert "another process" in command("out=out", status=2)


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
    command("image_encoder.regions=2", "dtype=float16", "splits=[val]", "out=regions")
    stored = np.load(tmp_path / "regions" / "dev_ims.npy")
    assert sorted(contents(tmp_path / "regions")) == ["dev_caps.txt", "dev_ids.txt", "dev_ims.npy"]
    assert (stored.shape, stored.dtype) == ((32, 4, 512), np.float16)
    model = json.loads((tmp_path / "regions" / "manifest.json").read_text())["settings"]["model"]
    encoder = ImageBackbone((3, 64, 64), "resnet18", weights=str(weights))
    assert model["weights"] == weights_hash(encoder.backbone.network)
    assert len((tmp_path / "regions" / "dev_caps.txt").read_text().splitlines()) == 160


def test_what_is_refused(command, weights, tmp_path):
    broken = torch.load(weights, weights_only=True)
    broken["layer4.1.bn2.weight"][3] = float("nan")
    torch.save(broken, tmp_path / "nan.pth")
    assert "scene-train-000000" in command("image_encoder.weights=nan.pth", "out=a", status=2)
    assert "ImageCNN" in command("out=b", model=("data=scenes", "data.size=tiny", "image_encoder=image_cnn"), status=2)
    for setting, key in (
        (None, "data.json"),
        ("dtype=int8", "dtype"),
        ("splits=[dev]", "split"),
        ("splits=[]", "splits"),
    ):
        given = (setting,) if setting else ()
        assert key in command("out=b", *given, model=MODEL if setting else (), status=2)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "dev_ims.npy").write_text("precious")
    for given in ((), ("overwrite=true",)):
        assert "dev_ims.npy" in command("out=mine", "splits=[val]", *given, status=2)
    assert (tmp_path / "mine" / "dev_ims.npy").read_text() == "precious"
    assert not (tmp_path / "b").exists()
