"""Commands in forked children of one warm process, that can be killed, starved and watched.

A child calls `vsehub.cli.main.main`, which is what the console script calls, in a session of its own.
"""

import atexit
import contextlib
import importlib
import json
import logging
import multiprocessing.util
import os
import signal
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

ENDS = 180.0  # seconds after which a command passes for one that hangs
TAKEN_DOWN = 1.0  # seconds that the end of a process may take
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "300",
    "TQDM_DISABLE": "1",
    "VSEHUB_TRACEBACK": "",
}


@dataclass(frozen=True)
class Ended:
    """How a command ended. status: as a shell has it, 128 + N after signal N. hit: whether the signal reached it."""

    status: int
    out: str
    err: str
    seconds: float
    hit: bool = False
    pid: int = 0

    @property
    def said(self) -> list[str]:
        """The lines of stderr that are the command's own last word."""
        return [line for line in self.err.splitlines() if line.startswith("vsehub")]

    @property
    def broke(self) -> list[str]:
        """What the streams hold that no user should see."""
        unwanted = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error")
        return [word for word in unwanted if word in self.err or word in self.out]


class Running:
    """A command that has been started in a forked child.

    arguments: those after `vsehub`. cwd: where it runs. before: called in the child before the command begins.
    log: the name of the files for its output, or their paths: (stdout, stderr). main: what runs; None: `vsehub`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        before: Callable[[], None] | None = None,
        environment: dict[str, str] | None = None,
        log: str | tuple[Path, Path] = "command",
        main: Callable[[], None] | None = None,
    ):
        self.out, self.err = (cwd / f"{log}.out", cwd / f"{log}.err") if isinstance(log, str) else log
        for file in (self.out, self.err):
            file.unlink(missing_ok=True)
        ready, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _child(arguments, cwd, (self.out, self.err), before, environment or {}, main, tell)
        os.close(tell)
        os.read(ready, 1)  # the child stands before its command, or has ended
        os.close(ready)
        self.began = time.monotonic()
        self._status: int | None = None

    def poll(self) -> bool:
        """Whether the command has ended."""
        if self._status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self._status = status
                self.ended = time.monotonic()
        return self._status is not None

    def send(self, number: int) -> bool:
        """Send a signal to the command's process group; False where it has ended already."""
        if self.poll():
            return False
        os.killpg(self.pid, number)
        return True

    def wait(self, until: float | None = None, limit: float = ENDS) -> bool:
        """Wait for the end, or for the moment `until` seconds after the start; whether it has ended."""
        while not self.poll():
            now = time.monotonic() - self.began
            if until is not None and now >= until:
                return False
            if now > limit:
                os.killpg(self.pid, signal.SIGABRT)
                os.waitpid(self.pid, 0)
                raise TimeoutError(f"the command hangs: it had not ended after {limit:.0f} seconds")
            time.sleep(0.002)
        return True

    def result(self, hit: bool = False) -> Ended:
        """Wait for the end; how it ended."""
        self.wait()
        code = os.waitstatus_to_exitcode(self._status)
        texts = [file.read_text(errors="replace") if file.is_file() else "" for file in (self.out, self.err)]
        return Ended(code if code >= 0 else 128 - code, *texts, self.ended - self.began, hit, self.pid)


def run(
    arguments: Sequence[str],
    cwd: Path,
    before: Callable[[], None] | None = None,
    environment: dict[str, str] | None = None,
    kill: tuple[int, float] | None = None,
) -> Ended:
    """Run a command to its end; kill: a signal, and after how many seconds it is sent."""
    running = Running(arguments, cwd, before, environment)
    if kill is None or running.wait(until=kill[1]) or not running.send(kill[0]):
        return running.result()
    sent = time.monotonic()
    ended = running.result(hit=True)
    # A process that is being taken down still takes signals; one that runs on after a signal has lost it.
    too_late = ended.status == 0 and running.ended - sent < TAKEN_DOWN
    return replace(ended, hit=not too_late)


def _child(
    arguments: Sequence[str],
    cwd: Path,
    streams: tuple[Path, Path],
    before: Callable[[], None] | None,
    environment: dict[str, str],
    main: Callable[[], None] | None,
    tell: int,
) -> None:
    """Never returns."""
    status = 1
    try:
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.chdir(cwd)
        for number, file in zip((1, 2), streams, strict=True):
            opened = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
            os.dup2(opened, number)
            os.close(opened)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        sys.stdout = open(1, "w", buffering=8192, encoding="utf-8", closefd=False)  # noqa: SIM115
        sys.stderr = open(2, "w", buffering=1, encoding="utf-8", closefd=False)  # noqa: SIM115
        os.environ.update(ENVIRONMENT | environment)
        forget_ends()
        sys.argv = ["vsehub", *map(str, arguments)]
        if before is not None:
            before()
        os.write(tell, b".")
        os.close(tell)
        status = called(main)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status)


def forget_ends() -> None:
    """What libraries registered for the end of the parent, as removing temporary folders, is the parent's to do."""
    for finalizer in list(weakref.finalize._registry):
        finalizer.detach()
    atexit._clear()
    for own in (logging.shutdown, weakref.finalize._exitfunc, multiprocessing.util._exit_function):  # the interpreter's
        atexit.register(own)


def called(main: Callable[[], None] | None) -> int:
    """The status with which the interpreter would end."""
    if main is None:
        from vsehub.cli.main import main

    status = 0
    try:
        main()
    except SystemExit as error:
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        status = 130
    except BaseException:
        traceback.print_exc()
        status = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    return status


def warm(modules: Sequence[str]) -> None:
    """Import the modules that commands have been seen to import, so that a child need not."""
    for name in modules:
        if name not in sys.modules and not name.startswith("__"):
            with contextlib.suppress(BaseException):
                importlib.import_module(name)


def leave_modules(path: Path) -> None:
    """Call in a child: when its command ends, the names of all imported modules are written to `path`."""
    atexit.register(lambda: path.write_text(json.dumps(sorted(sys.modules))))
