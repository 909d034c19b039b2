"""A signal just before or after the n-th call of a function of `os`, and how many calls there are."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

CALLS = ("replace", "fsync", "unlink", "mkdir")


def wrap(name: str, around: Callable) -> None:
    """Let os.`name` be called within `around(call)`."""
    real = getattr(os, name)
    setattr(os, name, lambda *arguments, **named: around(lambda: real(*arguments, **named)))


def count(file: Path) -> None:
    """Write after each call how often each function has been called so far."""
    numbers = dict.fromkeys(CALLS, 0)
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)

    def counted(name: str) -> Callable:
        def around(call: Callable) -> object:
            numbers[name] += 1
            os.pwrite(descriptor, json.dumps(numbers).encode(), 0)
            return call()

        return around

    for name in CALLS:
        wrap(name, counted(name))


def kill_at(name: str, number: int, when: str, signum: signal.Signals) -> None:
    """Send this process a signal before or after the `number`-th call (from 1) of os.`name`."""
    count = 0

    def around(call: Callable) -> object:
        nonlocal count
        count += 1
        if count == number and when == "before":
            os.kill(os.getpid(), signum)
        try:
            return call()
        finally:
            if count == number and when == "after":
                os.kill(os.getpid(), signum)

    wrap(name, around)
