"""The boundary at which every error becomes one line and a status."""

import contextlib
import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time

import pytest
import torch

from vsehub.checks import InputError
from vsehub.cli import app
from vsehub.cli.main import main


def throw(error):
    raise error


def ended(capsys, act):
    """The status and the line with which a command ends, through both boundaries that a command runs in."""
    with pytest.raises(SystemExit) as caught, app.boundary(), app.boundary():
        act()
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1, said
    return caught.value.code, said


def covered():
    """A signal that a library covers with an error of its own on its way."""
    try:
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    finally:
        raise AttributeError("'NoneType' object has no attribute '_cache'")


@pytest.mark.parametrize(
    ("raised", "status", "message"),
    [
        (InputError("k is 0; expected 1"), 2, "k is 0; expected 1"),
        (KeyboardInterrupt(), 130, "interrupted; complete files were kept"),
        (PermissionError(errno.EACCES, "Permission denied", "out/x"), 1, "out/x: Permission denied"),
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), 1, "out/x"),
        (MemoryError(), 1, "out of memory"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), 1, "out of memory"),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), 1, "2.00 GiB"),
        (RuntimeError("a tensor refers to a single memory location"), 1, "The traceback: "),
        (KeyError("lost"), 1, "KeyError: 'lost'. The traceback: "),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors(capsys, raised, status, message):
    code, said = ended(capsys, lambda: throw(raised))
    assert code == status
    assert message in said
    if "The traceback: " in said:
        log = said.split("traceback: ")[1].strip()
        with open(log, encoding="utf-8") as file:
            assert "Traceback (most recent call last)" in file.read()
        os.unlink(log)


def behind():
    """What a library makes of an allocation that fails in it."""
    try:
        torch.empty(10**14)
    except RuntimeError as error:
        raise ValueError("the forward pass failed") from error


def test_memory_that_a_library_did_not_get(capsys):
    code, said = ended(capsys, behind)
    assert (code, "out of memory" in said) == (1, True)


def test_a_covered_signal_is_still_one(capsys):
    code, said = ended(capsys, covered)
    assert (code, "terminated; complete files were kept" in said) == (143, True)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_status_that_was_said_stays(capsys):
    with pytest.raises(SystemExit) as caught, app.boundary(), app.boundary():
        raise SystemExit(7)
    assert caught.value.code == 7
    assert capsys.readouterr().err == ""


def test_errors_raised_from_each_other_in_a_ring(capsys):
    first, second = OSError(errno.ENOSPC, "No space left on device"), ValueError("wrapper")
    first.__cause__, second.__cause__ = second, first
    code, said = ended(capsys, lambda: throw(first))
    assert (code, "the disk is full" in said) == (1, True)


STOPPED = """
import atexit, sys, time
from vsehub.cli import main

if sys.argv[1] == "at_exit":
    atexit.register(time.sleep, 60)
    atexit.register(print, "up", flush=True)
    sys.argv = ["vsehub", "--version"]
    main.main()
else:
    main.let_interrupts_end()
    print("up", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("where", ["imports", "at_exit"])
def test_a_signal_ends_the_process_where_nothing_catches_it(where, number, environment):
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED, where],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in jobs of some shells
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    while process.stdout.readline() != "up\n":
        assert process.poll() is None, process.stderr.read()
    process.send_signal(number)
    assert (process.communicate(timeout=20)[1], process.returncode) == ("", -number)


def test_an_interrupt_within_a_text_that_is_run(tmp_path, environment):
    """Python remembers it, and `python -m` would end by the signal in spite of the status."""
    (tmp_path / "interrupted.py").write_text(
        "import signal\n"
        "from vsehub.cli import app\n"
        "with app.boundary():\n"
        "    exec('signal.raise_signal(signal.SIGINT)')\n"
    )
    process = subprocess.run(
        [sys.executable, "-m", "interrupted"],
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),  # ignored in jobs of some shells
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env=environment,
    )
    assert "interrupted; complete files were kept" in process.stderr
    assert process.returncode == 130


@pytest.mark.long
def test_after_ctrl_c_the_line_says_how_a_training_goes_on(tmp_path, small, environment, monkeypatch):
    """The command in it is run as it stands, in the same folder."""
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
    until = time.monotonic() + 120
    while not (run / "checkpoints" / "last.ckpt").exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130, said
    again = re.search(r"complete files were kept, and `vsehub (train .*)` goes on", said.splitlines()[-1])[1]
    assert again == shlex.join(["train", f"resume='{run}'"])
    record = json.loads((run / "run.json").read_text())
    finished = [sys.executable, "-m", "vsehub", *shlex.split(again), f"trainer.max_epochs={record['epochs'] + 1}"]
    ended = subprocess.run(finished, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((run / "run.json").read_text())["status"] == "finished"


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_threads_wait_without_spinning(given, found, capsys, monkeypatch):
    """Unless the environment says otherwise; torch, which reads it when it is loaded, comes later."""
    monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    monkeypatch.setattr(sys, "argv", ["vsehub", "--help"])
    with contextlib.suppress(SystemExit):
        main()
    assert "usage: vsehub COMMAND" in capsys.readouterr().out
    assert os.environ["OMP_WAIT_POLICY"] == found
