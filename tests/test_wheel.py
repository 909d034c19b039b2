"""What a stranger installs: built, put in a folder of its own, run from elsewhere."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TRAIN = """
import sys, vsehub
assert vsehub.__file__.startswith(sys.argv[1]), vsehub.__file__
sys.argv = ["vsehub", "train", "data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8", "image_encoder.width=4",
            "trainer.max_epochs=1", "hydra.run.dir=run"]
from vsehub.cli.main import main
main()
"""


def run(*command, **settings):
    done = subprocess.run([sys.executable, *map(str, command)], capture_output=True, text=True, **settings)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_wheel_trains(tmp_path, shared_folder):
    pytest.importorskip("hatchling")
    run("-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path / "dist", ROOT)
    (wheel,) = (tmp_path / "dist").iterdir()
    inside = set(zipfile.ZipFile(wheel).namelist())
    settings = {f"vsehub/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "conf").rglob("*.yaml")}
    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src" / "vsehub").rglob("*.*")}
    assert settings
    assert settings | {name for name in package if "__pycache__" not in name} <= inside
    assert not [name for name in inside if name.startswith(("tests", "experiments"))]
    site = tmp_path / "site"
    run("-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    environment = os.environ | {"PYTHONPATH": str(site), "XDG_CACHE_HOME": str(shared_folder / "cache")}
    told = run("-c", TRAIN, site, cwd=elsewhere, env=environment)
    assert "rsum" in told
    assert (elsewhere / "run" / "checkpoints" / "best.safetensors").is_file()
