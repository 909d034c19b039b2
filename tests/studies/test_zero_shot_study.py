"""experiments/zero_shot by whole commands: towers with random weights, two tiny data sets."""

import json

import numpy as np
import pandas as pd
import pytest
from PIL import Image
from tiny_photos import photos
from tiny_towers import tiny_open_clip

from experiments import running
from experiments.__main__ import main

KEYS = ["model", "data", "direction", "criterion", "reference"]


@pytest.mark.long
def test_models_are_encoded_and_ranked_once(tmp_path, run_here, monkeypatch):
    commands = []
    monkeypatch.setattr(running, "run", lambda command, _: commands.append(command[0]) or run_here(*command))
    sets = {name: photos(tmp_path / name, count) for name, count in (("a", 36), ("b", 42))}
    random = np.random.default_rng(0)
    for path in tmp_path.glob("*/*.png"):  # no two alike
        Image.fromarray(random.integers(0, 256, (40, 40, 3), np.uint8)).save(path)
    captions = tmp_path / "b" / "data.json"
    captions.write_text(captions.read_text().replace('"a ', '"big ').replace('"the ', '"small '))
    data = [one for name, files in sets.items() for one in ("--data", name, *files.values())]
    rest = ["--criteria", "csls", "--out", str(tmp_path / "out"), "--to", str(tmp_path)]
    models = [tiny_open_clip(tmp_path / name, seed) for seed, name in enumerate(("one", "two"))]
    main(["zero_shot", "measure", *data, *rest, "--models", models[0]])
    assert commands == 2 * ["extract"] + 12 * ["rerank"]
    main(["zero_shot", "measure", *data, *rest, "--models", *models])
    assert len(commands) == 28  # nothing of the first model is done again
    frame = pd.read_csv(tmp_path / "results.csv").set_index(KEYS)
    assert frame.index.is_unique
    assert len(frame) == 2 * 2 * 2 * (1 + 3)
    files = [f"data.{key}={value}" for key, value in sets["a"].items()]
    run_here("evaluate", f"model=open_clip:{models[0]}", "data=karpathy", *files, "out=evaluated")
    metrics = json.loads(next((tmp_path / "evaluated").rglob("test-*.json")).read_text())["metrics"]
    for side, direction in (("t2i", "text to image"), ("i2t", "image to text")):
        plain = frame.loc[(models[0], "a", direction, "nns", "none")]
        assert plain.tolist() == pytest.approx([metrics[f"{side}/r{k}"] for k in (1, 5, 10)], rel=1e-4)
