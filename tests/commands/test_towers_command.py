"""Training on joint models by the command line: adapters with HAL and its bank, resumed, measured, searched."""

import json

import pytest
import torch
import torch.nn.functional as F
from broken_off import stopped
from safetensors.torch import load_file
from tiny_photos import photos
from tiny_towers import tiny_hf, tiny_open_clip

from vsehub.data import Karpathy
from vsehub.data.vectors.embeddings import open_vectors
from vsehub.models.zero_shot import ZeroShot


@pytest.fixture
def data(tmp_path):
    return ["data=karpathy", *(f"data.{key}={value}" for key, value in photos(tmp_path / "photos").items())]


SMALL = ("trainer.max_epochs=2", "loader.batch_size=8", "trainer.accelerator=cpu", "+trainer.enable_progress_bar=false")
BANK = ("loss=hal", "bank=memory", "bank.fraction=1.0", "bank.k=2")


@pytest.mark.long
@pytest.mark.parametrize(("library", "make"), [("hf", tiny_hf), ("open_clip", tiny_open_clip)])
def test_adapters_with_the_bank(library, make, data, tmp_path, run_here):
    encoders = [f"image_encoder={library}", f"image_encoder.model={make(tmp_path / 'clip')}", f"text_encoder={library}"]
    assert "frozen" in run_here("train", *data, *encoders, *SMALL, status=2)
    encoders += ["image_encoder.tune=lora", "text_encoder.tune=lora", "text_encoder.learning_rate=0.01"]
    run, half = tmp_path / "run", tmp_path / "half"
    run_here("train", *data, *encoders, *BANK, *SMALL, f"hydra.run.dir={run}")
    best = run / "checkpoints" / "best.safetensors"
    assert any(weight.abs().sum() > 0 for name, weight in load_file(best).items() if "lora_B" in name)
    run_here("train", *data, *encoders, *BANK, *SMALL, "trainer.max_epochs=1", f"hydra.run.dir={half}")
    run_here("train", f"resume={stopped(half)}", "trainer.max_epochs=2")
    again, whole = (
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"] for folder in (half, run)
    )
    assert all(torch.equal(again[name], whole[name]) for name in whole)

    (tmp_path / "clip").rename(tmp_path / "gone")  # the checkpoint is a whole model
    (path,) = (run / "evaluations").glob("test-single-nns-*.json")
    before = json.loads(path.read_text())["metrics"]
    run_here("evaluate", f"checkpoint={best}", "overwrite=true")
    assert json.loads(path.read_text())["metrics"] == before


@pytest.mark.long
def test_vectors_of_a_collection(data, tmp_path, run_here):
    """The commands on vectors read the extracted files."""
    folder = tiny_hf(tmp_path / "clip")
    arguments = [*data, "image_encoder=hf", f"image_encoder.model={folder}", "batch_size=3", "prompt='photo of {}'"]
    run_here("extract", *arguments, "out=one")
    settings = dict(setting.removeprefix("data.").split("=", 1) for setting in data[1:])
    model = ZeroShot(f"hf:{folder}", Karpathy(**settings), prompt="photo of {}")
    encoded = model.encode("val")
    for path, wanted in (("one/val/texts::text_emb", encoded.texts), ("one/val/images::img_emb", encoded.images)):
        torch.testing.assert_close(open_vectors(path).rows(0, len(wanted)), F.normalize(wanted, dim=1))
    files = ["queries=one/test/texts::text_emb", "items=one/test/images::img_emb", "truth=one/test.csv"]
    run_here("diagnose", *files, "k=2", "out=page")
    assert (tmp_path / "page" / "result.json").is_file()
    pairs = ["data=pairs", "data.images=one/images::img_emb", "data.texts=one/texts::text_emb"]
    pairs += [f"data.splits.{split}=one/{split}.csv" for split in ("train", "val", "test")]
    run_here("train", *pairs, *SMALL, f"hydra.run.dir={tmp_path / 'adapted'}")
