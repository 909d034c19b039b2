"""The end of this process: on SIGINT and SIGTERM, and together with the process that started it."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

INTERRUPTED, TERMINATED = 130, 143  # exit statuses
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


class Terminated(SystemExit):
    """Raised on SIGTERM."""


@contextmanager
def answered() -> Iterator[None]:
    """Raise Terminated on SIGTERM and KeyboardInterrupt on SIGINT within the block.

    Python raises them when the main thread returns from native code. Nothing changes in other threads and where SIGTERM
    has a handler already; an ignored SIGINT stays ignored.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: _terminated}
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        handlers[signal.SIGINT] = signal.default_int_handler
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


def _terminated(signum: int, frame: Any) -> NoReturn:
    raise Terminated(TERMINATED)


def forget_interrupt() -> None:
    """Let a process whose KeyboardInterrupt was caught end with the status that it gives.

    Python remembers a KeyboardInterrupt that leaves the `exec` of a text, as libraries run them while they are imported
    (dataclasses, named tuples). `python -m` then ends by SIGINT whatever the status is. The next text that is run
    makes Python forget it.
    """
    exec("pass")


def end_with_starter() -> None:
    """On Linux, end one of several processes when the one that started it ends, even by SIGKILL.

    To be called before the imports, which take seconds.
    """
    if "LOCAL_RANK" in os.environ and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
