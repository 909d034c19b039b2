"""Lightning's settings and classes in a training: debug runs, profilers, several loggers, callbacks."""

import csv
import json
import re
import sys

import pytest

OWN = """# @package _global_
defaults:
  - override /logger: null
loss:
  _target_: own_loss.Own
logger:
  - {_target_: pytorch_lightning.loggers.CSVLogger, save_dir: "${run_folder}", name: csv}
  - {_target_: pytorch_lightning.loggers.CSVLogger, save_dir: "${run_folder}", name: second}
callbacks:
  timer: {_target_: pytorch_lightning.callbacks.Timer}
"""
LOSS = """
import torch
from vsehub.types import Loss

VALUES = []

class Own(Loss):
    def __init__(self, **settings):
        super().__init__()

    def forward(self, scores, positives, neighbors=None):
        loss = torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
        VALUES.append(loss.item())
        return loss

class Broken(Own):
    def forward(self, scores, positives, neighbors=None):
        return super().forward(scores, positives) + (scores * 0).sum().log() * 0

class Steep(Own):
    def forward(self, scores, positives, neighbors=None):
        return super().forward(scores, positives) + (scores * 0).sum().sqrt()
"""


def test_lightnings_own_classes_and_a_loss_that_returns_a_tensor(run_here, small, tmp_path, monkeypatch):
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "mine.yaml").write_text(OWN)
    (tmp_path / "own_loss.py").write_text(LOSS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_loss", raising=False)
    debug = ("debug=[overfit,profiler]", "trainer.max_epochs=2")
    said = run_here("train", *small, "--config-dir=own", "experiment=mine", *debug, "hydra.run.dir=run")
    assert "run_training_batch" in said
    assert "2 epochs of 2 steps: embedding_dim" in said
    assert "optimizer.lr 0.001, warm-up 0 steps, trainer.gradient_clip_val 2.0, averaged weights" in said
    first, last = (line for line in said.splitlines() if " of 2: loss" in line)
    assert re.search(r"epoch 1 of 2: .* \(chance 95.9\), [0-9.]+ s$", first)
    assert "epoch 2 of 2: " in last
    for name in ("csv", "second"):
        assert (tmp_path / "run" / name / "version_0" / "metrics.csv").is_file()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["status"], record["epochs"]) == ("finished", 2)
    steps = sys.modules["own_loss"].VALUES
    means = pytest.approx([(steps[0] + steps[1]) / 2, (steps[2] + steps[3]) / 2])
    for file in ("metrics.csv", "csv/version_0/metrics.csv"):
        with (tmp_path / "run" / file).open() as handle:
            assert [float(row["train/loss"]) for row in csv.DictReader(handle) if row["train/loss"]] == means, file
    assert f"loss {means.expected[0]:.4g}" in first


@pytest.mark.parametrize(
    ("name", "named"), [("Broken", "the loss Broken returned NaN"), ("Steep", "the loss Steep .* its gradient was not")]
)
def test_a_loss_that_is_nan_or_has_such_a_gradient_is_blamed_itself(
    run_here, small, tmp_path, monkeypatch, name, named
):
    (tmp_path / "own_loss.py").write_text(LOSS)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "own_loss", raising=False)
    said = run_here("train", *small, f"loss._target_=own_loss.{name}", "hydra.run.dir=broken", status=2)
    assert re.search(named, said)
