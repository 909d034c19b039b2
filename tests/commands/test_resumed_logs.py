"""What the csv and TensorBoard loggers of a run that was killed hold after it was resumed. wandb: test_wandb.py."""

import importlib.util

import pytest
import torch
from broken_off import EPOCHS, SETTINGS, STEPS, csv_rows, kill, require_whole


@pytest.fixture
def resumed(vsehub, tmp_path):
    """A function: train with a logger, kill in the middle of an epoch, change the folder, resume; the run's folder."""

    def train(logger, logged, change=lambda folder: None):
        folder = tmp_path / "run"
        settings = (f"logger={logger}", *SETTINGS, f"hydra.run.dir={folder}")
        last = kill(vsehub("train", *settings, cwd=tmp_path, small=True, start=True), lambda: logged(folder))
        checkpoint = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
        assert last >= checkpoint["global_step"], "nothing was logged twice, so that nothing is tested"
        change(folder)
        vsehub("train", f"resume={folder}", cwd=tmp_path)
        return folder

    return train


def csv_steps(folder):
    rows = csv_rows(folder / "csv" / "version_0" / "metrics.csv")
    return [int(row["step"]) for row in rows if (row.get("step") or "").isdigit()]


def without_last_epoch(folder):
    """As if the kill had come between the checkpoint and its epoch's row, and had cut off the row that was written."""
    file = folder / "csv" / "version_0" / "metrics.csv"
    lines = file.read_text().splitlines(keepends=True)
    steps = [line.split(",")[list(csv_rows(file)[0]).index("step")] for line in lines]
    whole = lines[: max(i for i, step in enumerate(steps) if step.isdigit() and int(step) % STEPS == STEPS - 1)]
    file.write_text("".join(whole) + "1,2")


@pytest.mark.parametrize("change", [lambda folder: None, without_last_epoch])
@pytest.mark.long
def test_csv(resumed, change):
    folder = resumed("csv", csv_steps, change)
    assert [path.name for path in (folder / "csv").iterdir()] == ["version_0"]
    require_whole(csv_rows(folder / "csv" / "version_0" / "metrics.csv"), folder)


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="tensorboard is not installed")
@pytest.mark.long
def test_tensorboard(resumed):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    def events(folder):
        return EventAccumulator(str(folder / "tensorboard" / "version_0"), {"scalars": 0, "images": 0}).Reload()

    def steps(folder):
        at_last = (folder / "checkpoints" / "last.ckpt").is_file() and events(folder)
        return [event.step for event in at_last.Scalars("train/loss")] if at_last else []

    folder = resumed("tensorboard", steps)
    assert [path.name for path in (folder / "tensorboard").iterdir()] == ["version_0"]
    shown = events(folder)
    rows = [
        {"step": event.step, name: event.value} for name in ("train/loss", "val/rsum") for event in shown.Scalars(name)
    ]
    assert [row["step"] for row in rows if "train/loss" in row] == list(range(STEPS * EPOCHS))
    ends = [STEPS * (epoch + 1) - 1 for epoch in range(EPOCHS)]
    assert [row["step"] for row in rows if "val/rsum" in row] == ends
    assert [image.step for image in shown.Images("val/n_10")] == ends
    assert "test/text_summary" in shown.Tags()["tensors"]
    recorded = [float(row["val/rsum"]) for row in csv_rows(folder / "metrics.csv")]
    assert [row["val/rsum"] for row in rows if "val/rsum" in row] == pytest.approx(recorded, rel=1e-6)
