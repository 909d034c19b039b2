"""Faults at the n-th call of a function of `os`: a signal just before or after it, or an error instead of it."""

import errno
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

CALLS = ("replace", "fsync", "unlink", "mkdir")
WHEN = ("before", "after")
VARIABLE = "VSEHUB_TORTURE"  # JSON: {"call": "fsync", "number": 3, "when": "before", "signal": 9} or {"count": FILE}


def install() -> None:
    """Do in this process what the environment's variable asks for, if it asks for anything."""
    asked = json.loads(os.environ.get(VARIABLE, "{}"))
    if "count" in asked:
        counted(Path(asked["count"]))
    elif asked:
        kill_at(asked["call"], asked["number"], asked["when"], asked["signal"])


def counted(file: Path) -> None:
    """Write after each call how often each function has been called so far."""
    numbers = dict.fromkeys(CALLS, 0)
    write = os.write
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def wrapped(name: str) -> Callable:
        real = getattr(os, name)

        def call(*given, **named):
            numbers[name] += 1
            os.lseek(descriptor, 0, os.SEEK_SET)
            write(descriptor, json.dumps(numbers).encode())
            return real(*given, **named)

        return call

    for name in CALLS:
        setattr(os, name, wrapped(name))


def kill_at(name: str, number: int, when: str, signum: int) -> None:
    """Send this process a signal at the `number`-th call (from 1) of os.`name`."""
    real, seen = getattr(os, name), 0

    def call(*given, **named):
        nonlocal seen
        seen += 1
        mine = seen == number
        if mine and when == "before":
            os.kill(os.getpid(), signal.Signals(signum))
        try:
            return real(*given, **named)
        finally:
            if mine and when == "after":
                os.kill(os.getpid(), signal.Signals(signum))

    setattr(os, name, call)


def refuse(name: str, number: int, code: int = errno.EDQUOT) -> None:
    """Let os.`name` fail from its `number`-th call on."""
    real, seen = getattr(os, name), 0

    def call(*given, **named):
        nonlocal seen
        seen += 1
        if seen >= number:
            raise OSError(code, os.strerror(code))
        return real(*given, **named)

    setattr(os, name, call)
