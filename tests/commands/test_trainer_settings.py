"""Lightning's settings and classes in a training: debug runs, profilers, several loggers, callbacks."""

import json

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

class Own(Loss):
    def __init__(self, **settings):
        super().__init__()

    def forward(self, scores, positives, neighbors=None):
        return torch.nn.functional.cross_entropy(scores, torch.arange(len(scores)))
"""


def test_lightnings_own_classes_and_a_loss_that_returns_a_tensor(run_here, small, tmp_path, monkeypatch):
    (tmp_path / "own" / "experiment").mkdir(parents=True)
    (tmp_path / "own" / "experiment" / "mine.yaml").write_text(OWN)
    (tmp_path / "own_loss.py").write_text(LOSS)
    monkeypatch.syspath_prepend(tmp_path)
    debug = ("+trainer.overfit_batches=2", "+trainer.profiler=simple", "trainer.max_epochs=2")
    said = run_here("train", *small, "--config-dir=own", "experiment=mine", *debug, "hydra.run.dir=run")
    assert "run_training_batch" in said
    assert "2 epochs, lr 0.001, 2 steps an epoch, warm-up 0 steps, chance rsum 95.9" in said
    for name in ("csv", "second"):
        assert (tmp_path / "run" / name / "version_0" / "metrics.csv").is_file()
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (record["status"], record["epochs"]) == ("finished", 2)


def test_debug_runs_and_epochs_without_measuring(run_here, small):
    assert "best epoch" not in run_here("train", *small, "+trainer.fast_dev_run=true", "hydra.run.dir=fast")
    assert "check_val_every_n_epoch" in run_here("train", *small, "+trainer.check_val_every_n_epoch=2", status=2)
