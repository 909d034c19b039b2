"""`vsehub extract`: killed it continues to the same bytes, and training on them is training on the pictures."""

import time
from functools import partial

import numpy as np
import pytest
import torch
import torchvision
from run_files import rows

from vsehub.io.files import lock_folder

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
    return partial(run_here, "extract", *MODEL, f"image_encoder.weights={weights}")


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix in (".npy", ".txt")}


@pytest.mark.long
def test_killed_it_continues_to_the_same_bytes(run_here, vsehub, tmp_path):
    """Also with random weights, which are drawn anew."""
    settings = (*MODEL, "batch_size=4", "+image_encoder.pretrained=false")
    run_here("extract", *settings, "out=unbroken")
    process = vsehub("extract", *settings, "out=killed", cwd=tmp_path, start=True)
    chunks = tmp_path / "killed" / ".chunks"
    while len(list(chunks.glob("*.npy"))) < 5:
        assert process.poll() is None, (tmp_path / "output.txt").read_text()
        time.sleep(0.002)
    process.kill()
    process.wait()
    written = list(chunks.glob("*.npy"))
    assert 5 <= len(written) < 40
    assert "dtype" in run_here("extract", *settings, "out=killed", "dtype=float16", status=2)
    last = max(written)
    np.save(last, np.load(last) + 1)  # is joined as it is, and not computed again
    run_here("extract", *settings, "out=killed")
    continued, expected = contents(tmp_path / "killed"), contents(tmp_path / "unbroken")
    assert [name for name in expected if continued[name] != expected[name]] == ["train_ims.npy"]
    assert not chunks.exists()
    run_here("extract", *settings, "out=killed", "overwrite=true")
    assert contents(tmp_path / "killed") == expected


@pytest.mark.long
def test_training_on_features_is_training_with_the_frozen_network(command, vsehub, weights, tmp_path):
    command("out=features")
    small = ("embedding_dim=16", "text_encoder.word_dim=8", "loader.batch_size=64", "callbacks.warmup.steps=12")
    small = (*small, "trainer.max_epochs=2", "trainer.precision=32-true", "trainer.accelerator=cpu", "loss=hal")
    pictures = (*MODEL, f"image_encoder.weights={weights}", f"hydra.run.dir={tmp_path / 'pictures'}")
    vsehub("train", *pictures, *small, cwd=tmp_path)
    stored = ("data=precomp", f"data.root={tmp_path / 'features'}", f"hydra.run.dir={tmp_path / 'stored'}")
    vsehub("train", *stored, *small, cwd=tmp_path)

    for ours, theirs in zip(rows(tmp_path / "pictures"), rows(tmp_path / "stored"), strict=True):
        assert float(ours["train/loss"]) == pytest.approx(float(theirs["train/loss"]), rel=1e-5)
        assert float(ours["val/rsum"]) == pytest.approx(float(theirs["val/rsum"]), abs=1)
    states = [
        torch.load(tmp_path / run / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for run in ("pictures", "stored")
    ]
    for name, value in states[1].items():
        weight = states[0][name.replace("image_encoder.", "image_encoder.head.")]
        torch.testing.assert_close(weight, value, rtol=1e-5, atol=1e-5, msg=name)

    file = torch.load(weights, weights_only=True)
    for name, value in states[0].items():
        assert ".backbone." not in name or torch.equal(value, file[name.split("network.")[1]])
    weights.rename(tmp_path / "away.pth")  # a checkpoint is enough to measure with
    vsehub("evaluate", f"checkpoint={tmp_path / 'pictures' / 'checkpoints' / 'best.safetensors'}", cwd=tmp_path)
    (tmp_path / "away.pth").rename(weights)


def test_regions_in_half_precision(command, tmp_path):
    command("image_encoder.regions=2", "dtype=float16", "splits=[val]", "out=regions")
    stored = np.load(tmp_path / "regions" / "dev_ims.npy")
    assert sorted(contents(tmp_path / "regions")) == ["dev_caps.txt", "dev_ids.txt", "dev_ims.npy"]
    assert (stored.shape, stored.dtype) == ((32, 4, 512), np.float16)
    assert len((tmp_path / "regions" / "dev_caps.txt").read_text().splitlines()) == 160


def test_what_is_refused(command, run_here, weights, tmp_path):
    broken = torch.load(weights, weights_only=True)
    broken["layer4.1.bn2.weight"][3] = float("nan")
    torch.save(broken, tmp_path / "nan.pth")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "dev_ims.npy").write_text("precious")
    with lock_folder(tmp_path / "busy", "extracting"):
        for settings, named in (
            (("image_encoder.weights=nan.pth", "out=a"), "scene-train-000000"),
            (("splits=[dev]", "out=b"), "split"),
            (("splits=[]", "out=b"), "splits"),
            (("out=mine", "splits=[val]", "overwrite=true"), "dev_ims.npy"),
            (("out=busy",), "another process"),
        ):
            assert named in command(*settings, status=2), settings
    assert "ImageCNN" in run_here("extract", *MODEL[:2], "image_encoder=image_cnn", "out=b", status=2)
    assert (tmp_path / "mine" / "dev_ims.npy").read_text() == "precious"
    assert not (tmp_path / "b").exists()
