"""The boundary at which every error becomes one line and a status."""

import errno
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from omegaconf.errors import ConfigAttributeError

from vsehub.checks import InputError
from vsehub.cli import app


def throw(raised):
    """Raise an error, or that with which a library covers a signal on its way."""
    if not isinstance(raised, signal.Signals):
        raise raised
    try:
        signal.raise_signal(raised)
    finally:
        raise AttributeError("'NoneType' object has no attribute '_cache'")


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (InputError("k is 0; expected 1"), 2, "k is 0; expected 1"),
        (InputError("a\x1b[2J\x9b1m\x07\u202e.npy: no such file"), 2, ": a [2J 1m .npy: no such file"),
        (ConfigAttributeError("Key 'x' is not in struct\n  full_key: x"), 2, "Key 'x'"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (signal.SIGTERM, 143, "terminated"),
        (signal.SIGINT, 130, "interrupted"),
        (PermissionError(errno.EACCES, "Permission denied", "out/x"), 1, "out/x"),
        (OSError(errno.ENOSPC, "No space left on device"), 1, "No space left"),
        (MemoryError("Unable to allocate 2 GiB"), 1, "2 GiB"),
        (KeyError("lost"), 1, "KeyError: 'lost'. The traceback: "),
    ],
    ids=repr,
)
def test_errors(capsys, raised, status, message):
    """Through both boundaries that a command runs in."""
    with pytest.raises(SystemExit) as caught, app.report_errors(), app.report_errors():
        throw(raised)
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1
    assert (caught.value.code, message in said) == (status, True)
    if "The traceback: " in said:
        log = Path(said.split("traceback: ")[1].strip())
        assert "Traceback (most recent call last)" in log.read_text()
        log.unlink()


def test_only_an_interrupted_training_is_told_to_resume(monkeypatch):
    for command, resumable in (("vsehub train", True), ("vsehub index", False)):
        monkeypatch.setattr(sys, "argv", [command])
        assert ("resume=" in app.report_of(KeyboardInterrupt())[0]) == resumable


@pytest.mark.long
def test_after_ctrl_c_the_line_says_how_a_training_goes_on(tmp_path, small, environment):
    run = tmp_path / "my run"
    command = [sys.executable, "-m", "vsehub", "train", *small, "trainer.max_epochs=40", f"hydra.run.dir='{run}'"]
    process = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while not (run / "checkpoints" / "last.ckpt").exists() and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode in (130, -signal.SIGINT), said  # both are 130 in a shell
    assert "`vsehub train resume=RUN_FOLDER` continues" in said.splitlines()[-1]
    epochs = json.loads((run / "run.json").read_text())["epochs"]
    finished = [sys.executable, "-m", "vsehub", "train", f"resume='{run}'", f"trainer.max_epochs={epochs + 1}"]
    subprocess.run(finished, cwd=tmp_path, env=environment, check=True)
    assert json.loads((run / "run.json").read_text())["status"] == "finished"
