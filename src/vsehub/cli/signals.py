"""How this process ends: on SIGINT and SIGTERM, in time, and together with the process that started it."""

import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, ClassVar, NoReturn

STARTED_BY = "VSEHUB_STARTED_BY"  # the process that started this one as one of several; set by `launch`
INTERRUPTED, TERMINATED = 130, 143  # exit statuses
GRACE = 10.0  # seconds in which a process must end after a signal
WORKER_GRACE = 5.0  # the same of a process that another one waits for
_STOPS = (signal.SIGINT, signal.SIGTERM)
_LOOK = 0.5  # seconds between two looks at the parent
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
    if not _in_main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    handlers: dict[signal.Signals, Any] = {signal.SIGTERM: _terminated}
    if signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
        handlers[signal.SIGINT] = signal.default_int_handler
    before = {one: signal.signal(one, handler) for one, handler in handlers.items()}
    try:
        with _Watch.over(too_late):
            yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


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


def _in_main_thread() -> bool:
    return threading.current_thread() is threading.main_thread()


class _Watch:
    """A thread that learns of signals without the main thread: the interpreter writes their numbers to a socket."""

    open: ClassVar[bool] = False

    @classmethod
    @contextmanager
    def over(cls, too_late: Callable[[int], None]) -> Iterator[None]:
        """Watch while the block runs."""
        receiver, sender = socket.socketpair()
        sender.setblocking(False)
        before = signal.set_wakeup_fd(sender.fileno(), warn_on_full_buffer=False)
        cls.open = True
        grace = WORKER_GRACE if STARTED_BY in os.environ else GRACE
        thread = threading.Thread(target=cls._wait, args=(receiver, grace, too_late), daemon=True)
        thread.start()
        try:
            yield
        finally:
            signal.set_wakeup_fd(before)
            cls.open = False
            with suppress(BlockingIOError):  # so many signals that the thread is about to end the process
                sender.send(b"\0")
                thread.join()
            sender.close()

    @staticmethod
    def _wait(receiver: socket.socket, grace: float, too_late: Callable[[int], None]) -> None:
        first, until = 0, 0.0
        with receiver:
            while True:
                left = max(0.0, until - time.monotonic()) if first else None
                if not select.select([receiver], [], [], left)[0]:
                    too_late(first)
                    return
                for number in receiver.recv(4096):
                    if number == 0:
                        return
                    if not first and number in _STOPS:
                        first, until = number, time.monotonic() + grace

    @classmethod
    def forget(cls) -> None:
        """In a forked child, whose signals are not its parent's."""
        if cls.open:
            signal.set_wakeup_fd(-1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Watch.forget)


def end_with_starter() -> None:
    """End this process when its starter ends, even by SIGKILL.

    To be called before the imports, which take seconds.
    """
    parent = int(os.environ[STARTED_BY]) if STARTED_BY in os.environ else None
    if parent is None and "TORCHELASTIC_RUN_ID" in os.environ:
        parent = os.getppid()
    if parent is None:
        return
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    threading.Thread(target=_end_without, args=(parent,), daemon=True).start()


def _end_without(parent: int) -> None:
    """For other systems than Linux, and for a parent that ended before this process asked for its signal."""
    while os.getppid() == parent:
        time.sleep(_LOOK)
    os._exit(1)
