"""Training on joint models by the command line: adapters with HAL and its bank, resumed, measured, searched."""

import json
import subprocess
import sys

import pytest
import torch
from safetensors.torch import load_file
from tiny_photos import photos
from tiny_towers import tiny_hf, tiny_open_clip


@pytest.fixture
def data(tmp_path):
    return ["data=karpathy", *(f"data.{key}={value}" for key, value in photos(tmp_path / "photos").items())]


SMALL = ("trainer.max_epochs=2", "loader.batch_size=8", "trainer.accelerator=cpu", "trainer.enable_progress_bar=false")
BANK = ("loss=hal", "bank=memory", "bank.fraction=1.0", "bank.k=2")


def test_adapters_with_the_bank(data, tmp_path, run_here):
    folder = tiny_hf(tmp_path / "clip")
    encoders = ["image_encoder=hf", f"image_encoder.model={folder}", "text_encoder=hf"]
    encoders += ["image_encoder.tune=lora", "text_encoder.tune=lora", "text_encoder.learning_rate=0.01"]
    run = tmp_path / "run"
    run_here("train", *data, *encoders, *BANK, *SMALL, f"hydra.run.dir={run}")
    record = json.loads((run / "run.json").read_text())
    assert record["status"] == "finished"
    best = run / "checkpoints" / "best.safetensors"
    assert all("lora_" in name or "base_hash" in name for name in load_file(best))
    assert any(one.abs().sum() > 0 for name, one in load_file(best).items() if "lora_B" in name)
    out = run_here("evaluate", f"checkpoint={best}", "criterion=csls", "reference=train")
    assert "inductive" in out
    (path,) = (run / "evaluations").glob("test-single-nns-*.json")
    before = json.loads(path.read_text())["metrics"]
    run_here("evaluate", f"checkpoint={best}", "overwrite=true")
    assert json.loads(path.read_text())["metrics"] == before

    half = tmp_path / "half"
    run_here("train", *data, *encoders, *BANK, *SMALL, "trainer.max_epochs=1", f"hydra.run.dir={half}")
    record = json.loads((half / "run.json").read_text())
    record["status"] = "stopped"
    (half / "run.json").write_text(json.dumps(record))
    run_here("train", f"resume={half}", "trainer.max_epochs=2")
    again, whole = (
        torch.load(one / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for one in (half, run)
    )
    assert all(torch.equal(again[name], whole[name]) for name in whole)

    tiny_hf(tmp_path / "clip", seed=1)
    said = run_here("evaluate", f"checkpoint={best}", "split=train", status=2)
    assert "the adapters were trained on other weights" in said


def test_both_halves_of_open_clip(data, tmp_path, run_here):
    folder = tiny_open_clip(tmp_path / "clip")
    encoders = ["image_encoder=open_clip", f"image_encoder.model={folder}", "text_encoder=open_clip"]
    said = run_here("train", *data, *encoders, *SMALL, status=2)
    assert "both encoders are frozen" in said
    heads = ["image_encoder.linear=16", "text_encoder.linear=16", "loss=infonce"]
    run = tmp_path / "run"
    run_here("train", *data, *encoders, *heads, *SMALL, f"hydra.run.dir={run}")
    (tmp_path / "clip").rename(tmp_path / "gone")
    best = run / "checkpoints" / "best.safetensors"
    run_here("search", f"checkpoint={best}", "a red box", "k=2", f"out={tmp_path / 'page'}")
    record = json.loads((run / "run.json").read_text())
    assert record["config"]["image_encoder"]["library"] == "open_clip"


def test_nothing_is_imported_unless_asked_for(tmp_path):
    """By a command that trains with other encoders; the library's import is tested in test_layers.py."""
    ask = (
        "import sys\nsys.argv = ['vsehub', 'train', '--cfg', 'job']\nimport vsehub, vsehub.encoders, vsehub.cli.main\n"
        "vsehub.encoders.ImageTower, vsehub.encoders.TextTower\nvsehub.cli.main.main()\n"
        "print(sorted({'open_clip', 'transformers', 'peft', 'timm', 'tokenizers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"
