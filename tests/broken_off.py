"""Training that is killed in the middle of an epoch, which has been logged in part, or stopped between two."""

import csv
import json
import signal
import time
from pathlib import Path

STEPS = 8  # an epoch of the tiny data
EPOCHS = 3
SETTINGS = (f"trainer.max_epochs={EPOCHS}", "trainer.log_every_n_steps=1")


def kill(process, logged, before=lambda: None):
    """Kill `process` when it has logged a few steps of an epoch after the first; the steps that it had logged.

    logged: gives the steps logged so far. before: is called while the process stands still, before its end.
    """
    deadline = time.monotonic() + 120
    while True:
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "it logs nothing"
        time.sleep(0.01)
        if max(logged(), default=0) > STEPS and 0 < max(logged()) % STEPS < STEPS - 2:
            process.send_signal(signal.SIGSTOP)
            last = max(logged())
            if 0 < last % STEPS < STEPS - 2:
                break
            process.send_signal(signal.SIGCONT)
    before()
    process.send_signal(signal.SIGKILL)
    process.wait()
    return last


def json_lines(file: Path):
    """The rows of a file of JSON lines; none while it does not exist, and none that is half written."""
    lines = file.read_text().split("\n")[:-1] if file.is_file() else []
    return [json.loads(line) for line in lines]


def csv_rows(file: Path):
    """The rows of a CSV file, and none while it does not exist."""
    return list(csv.DictReader(file.open(newline=""))) if file.is_file() else []


def require_whole(rows, folder, step="step"):
    """Assert that a run's log holds each step and epoch once, in order, with the figures of the run's metrics.csv."""
    assert [int(row[step]) for row in rows if row.get("train/loss")] == list(range(STEPS * EPOCHS))
    epochs = [row for row in rows if row.get("val/rsum")]
    assert [int(row[step]) for row in epochs] == [STEPS * (epoch + 1) - 1 for epoch in range(EPOCHS)]
    recorded = csv_rows(folder / "metrics.csv")
    for name in ("epoch", "val/rsum", "val/hubness/hs_sum"):
        assert [float(row[name]) for row in epochs] == [float(row[name]) for row in recorded], name


def stopped(folder: Path) -> Path:
    """The folder of a finished run, made one that was stopped after the same epochs, so that it can go on."""
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "stopped"}))
    return folder
