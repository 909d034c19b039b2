"""The boundary at which every error becomes one line and a status."""

import errno
import os
import signal

import pytest

from vsehub.checks import InputError
from vsehub.cli import app


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
        (OSError(errno.ENOSPC, "No space left on device", "out/x"), 1, r"the disk is full \(out/x\)"),
        (MemoryError(), 1, "out of memory"),
        (KeyError("lost"), 1, "KeyError: 'lost'. This is a bug in vsehub, not your mistake; its traceback: "),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors(capsys, raised, status, message):
    code, said = ended(capsys, lambda: throw(raised))
    assert code == status
    assert message.replace("\\", "") in said
    if "traceback: " in said:
        log = said.split("traceback: ")[1].strip()
        with open(log, encoding="utf-8") as file:
            assert "Traceback (most recent call last)" in file.read()
        os.unlink(log)


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
