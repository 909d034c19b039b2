"""docs/find.py ranks pictures as `vsehub search` does."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tiny_photos import photos
from tiny_towers import tiny_open_clip

import vsehub

pytestmark = pytest.mark.skipif(find_spec("onnxscript") is None, reason="pip install 'vsehub[export]'")
ROOT = Path(__file__).parents[2]
SMALL = ("trainer.max_epochs=1", "loader.batch_size=8", "trainer.accelerator=cpu", "+trainer.enable_progress_bar=false")
OWN = (
    "image_encoder=image_cnn",
    "image_encoder.width=4",
    "data.pictures.size=32",
    "text_encoder=text_gru",
    "text_encoder.word_dim=8",
    "embedding_dim=8",
    "loader.min_count=1",
)


@pytest.fixture
def find(tmp_path):
    """A function that runs the script."""

    def run(*arguments, status=0):
        command = [sys.executable, ROOT / "docs" / "find.py", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
        assert done.returncode == status, done.stderr
        return done.stdout or done.stderr

    return run


@pytest.mark.parametrize("kind", ["own", pytest.param("open_clip", marks=pytest.mark.long)])
@pytest.mark.long
def test_a_text_finds_the_pictures_that_the_model_finds(kind, find, run_here, tmp_path):
    folder = tmp_path / "photos"
    data = ["data=karpathy", *(f"data.{key}={value}" for key, value in photos(folder).items())]
    settings = list(OWN)
    if kind == "open_clip":
        model = tiny_open_clip(tmp_path / "clip")
        settings = [f"{side}_encoder{more}" for side in ("image", "text") for more in ("=open_clip", ".tune=lora")]
        settings += [f"image_encoder.model={model}", "loss=infonce"]
    run_here("train", *data, *settings, *SMALL, "hydra.run.dir=run")
    best = tmp_path / "run" / "checkpoints" / "best.safetensors"
    run_here("export", f"checkpoint={best}", "out=encoders")
    (folder / "data.json").unlink()

    trained = vsehub.load(best, device="cpu")
    names = trained.use_folder(folder).names
    for text in ("a red box on blue", "The BLUE's, and\tthe größe", ""):
        images = trained.encode_images(trained.splits["folder"].images)
        scores = trained.similarity(images, trained.encode_texts([text]))[:, 0]
        lines = [line.split() for line in find("encoders", folder, text).splitlines()]
        assert len(lines) == 10
        for score, name in lines:
            assert float(score) == pytest.approx(scores[names.index(name)].item(), abs=2e-4), text
        best_scores = scores.sort(descending=True).values[:10].tolist()
        assert [float(score) for score, _ in lines] == pytest.approx(best_scores, abs=2e-4)
