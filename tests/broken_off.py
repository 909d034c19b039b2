"""Training that is killed after its first checkpoint, or stopped between two epochs."""

import json
import time
from pathlib import Path

EPOCHS = 3
SETTINGS = (f"trainer.max_epochs={EPOCHS}", "trainer.log_every_n_steps=1")


def kill(process, folder):
    """Kill `process` once the run in `folder` has a checkpoint."""
    deadline = time.monotonic() + 120
    while not (folder / "checkpoints" / "last.ckpt").is_file():
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline, "it writes no checkpoint"
        time.sleep(0.01)
    process.kill()
    process.wait()


def stopped(folder: Path) -> Path:
    """The folder of a finished run, made one that was stopped after the same epochs, so that it can go on."""
    file = folder / "run.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"status": "stopped"}))
    return folder
