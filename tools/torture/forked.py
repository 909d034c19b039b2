"""Commands in forked children of one warm process, that can be killed and watched.

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
}


@dataclass(frozen=True)
class Ended:
    """How a command ended. status: as a shell has it, 128 + N after signal N. hit: whether the signal reached it."""

    status: int
    out: str
    err: str
    seconds: float
    hit: bool = False

    @property
    def broke(self) -> list[str]:
        """What the streams hold that no user should see."""
        unwanted = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error")
        return [word for word in unwanted if word in self.err or word in self.out]


class Running:
    """A command that has been started in a forked child.

    arguments: those after `vsehub`. cwd: where it runs. before: called in the child before the command begins. log: the
    files for its output (stdout, stderr); None: command.out and command.err in cwd. main: what runs; None: `vsehub`.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        cwd: Path,
        before: Callable[[], None] = lambda: None,
        environment: dict[str, str] | None = None,
        log: tuple[Path, Path] | None = None,
        main: Callable[[], None] | None = None,
    ):
        self.logs = log or (cwd / "command.out", cwd / "command.err")
        ready, tell = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                _enter(cwd, self.logs)
                os.environ.update(ENVIRONMENT | (environment or {}))
                sys.argv = ["vsehub", *map(str, arguments)]
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

    def wait(self, until: float = float("inf"), limit: float = ENDS) -> bool:
        """Wait for the end, or for the moment `until` seconds after the start; whether it has ended."""
        while not self.poll():
            now = time.monotonic() - self.began
            if now >= until:
                return False
            if now > limit:
                os.killpg(self.pid, signal.SIGABRT)
                raise TimeoutError(f"the command hangs: it had not ended after {limit:.0f} seconds")
            time.sleep(0.002)
        return True

    def result(self, hit: bool = False) -> Ended:
        """Wait for the end; how it ended."""
        self.wait()
        code = os.waitstatus_to_exitcode(self._status)
        texts = [file.read_text(errors="replace") if file.is_file() else "" for file in self.logs]
        return Ended(code if code >= 0 else 128 - code, *texts, self.ended - self.began, hit)


def run(
    arguments: Sequence[str],
    cwd: Path,
    before: Callable[[], None] = lambda: None,
    environment: dict[str, str] | None = None,
    kill: tuple[int, float] = (0, float("inf")),
) -> Ended:
    """Run a command to its end; kill: a signal, and after how many seconds it is sent."""
    running = Running(arguments, cwd, before, environment)
    if running.wait(until=kill[1]) or not running.send(kill[0]):
        return running.result()
    sent = time.monotonic()
    ended = running.result()
    # A process that is being taken down still takes signals; one that runs on after a signal has lost it.
    return replace(ended, hit=ended.status != 0 or running.ended - sent >= TAKEN_DOWN)


def _enter(cwd: Path, logs: tuple[Path, Path]) -> None:
    """Make the child a session of its own in `cwd`, with streams and signals as a shell gives them."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.chdir(cwd)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for number, file in enumerate(logs, 1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644), number)
    sys.stdout = open(1, "w", buffering=8192, encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", 1, "utf-8", "backslashreplace", closefd=False)  # noqa: SIM115
    # What libraries registered for the end of the parent, as removing temporary folders, is the parent's to do.
    for finalizer in list(weakref.finalize._registry):
        finalizer.detach()
    atexit._clear()
    for step in (
        logging.shutdown,
        weakref.finalize._exitfunc,
        multiprocessing.util._exit_function,
    ):  # the interpreter's
        atexit.register(step)


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
    except BaseException as error:
        traceback.print_exc()
        status = 130 if isinstance(error, KeyboardInterrupt) else 1
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
