"""The end of this process: on SIGINT and SIGTERM, in time, and together with the process that started it."""

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, NoReturn

INTERRUPTED, TERMINATED = 130, 143  # exit statuses
GRACE = 10.0  # seconds in which a process must end after a signal
_STOPS = (signal.SIGINT, signal.SIGTERM)
_watched: list[socket.socket] = []
_SET_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of Linux's prctl


class Terminated(SystemExit):
    """Raised on SIGTERM."""


@contextmanager
def answered(too_late: Callable[[int], None]) -> Iterator[None]:
    """Raise Terminated on SIGTERM and KeyboardInterrupt on SIGINT within the block.

    Python raises them when the main thread returns from native code, and prints but discards them in some callbacks.
    Where the block has not ended GRACE seconds after the signal, too_late(signal) is called in another thread; the
    function must end the process. Nothing changes in threads and where SIGTERM has a handler already.
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
    # A thread learns of signals without the main one: the interpreter writes their numbers to a socket.
    receiver, sender = socket.socketpair()
    sender.setblocking(False)
    woken = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
    over = threading.Event()
    threading.Thread(target=_wait, args=(receiver, over, too_late), daemon=True).start()
    _watched.append(sender)
    try:
        yield
    finally:
        _watched.remove(sender)
        signal.set_wakeup_fd(woken)
        over.set()
        with suppress(OSError), sender:  # the thread has ended, or so many signals came that it is awake
            sender.send(b"\0")
        for one, handler in before.items():
            signal.signal(one, handler)


def _wait(receiver: socket.socket, over: threading.Event, too_late: Callable[[int], None]) -> None:
    """Call too_late(signal) if the block is not over in time after the first signal; no more bytes mean that it is."""
    with receiver:
        sent = iter(lambda: receiver.recv(4096), b"")
        first = next((one for some in sent for one in some if one in (0, *_STOPS)), 0)
        if not over.wait(GRACE):
            too_late(first)


def _forget() -> None:
    """In a forked child, whose signals are not its parent's."""
    if _watched:
        signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def forget_interrupt() -> None:
    """Let a process whose KeyboardInterrupt was caught end with the status that it gives.

    Python remembers a KeyboardInterrupt that leaves the `exec` of a text, as libraries run them while they are imported
    (dataclasses, named tuples). `python -m` then ends by SIGINT whatever the status is. The next text that is run
    makes Python forget it.
    """
    exec("pass")


def _terminated(signum: int, frame: Any) -> NoReturn:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal must not interrupt the cleanup
    raise Terminated(TERMINATED)


def end_with_starter() -> None:
    """On Linux, end one of several processes when the one that started it ends, even by SIGKILL.

    To be called before the imports, which take seconds.
    """
    if "LOCAL_RANK" in os.environ and sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
