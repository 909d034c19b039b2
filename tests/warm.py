"""Commands and scripts in forks of one process that has imported torch, Lightning and Hydra: a tenth of a second each.

What a fork does is what the console script does, in a session, a working folder and an environment of its own. All
workers of pytest-xdist share the process; it ends when the last of them has.

    python tests/warm.py SOCKET
"""

import copy
import functools
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

from filelock import FileLock

ROOT = Path(__file__).parents[1]
TORTURE = ROOT / "tools" / "torture"
STARTED = 240.0  # seconds in which the process must have imported everything
STAY = b"stay\n"


class Warm:
    """The process's client. folder: shared by all that use one process. environment: that of its imports."""

    def __init__(self, folder: Path, environment: dict[str, str]):
        self.folder = folder
        with FileLock(folder / "warm.lock"):
            self._stays = self._joined() or self._started(environment)

    def _joined(self) -> socket.socket | None:
        address = self.folder / "warm.address"
        if address.is_file():
            with suppress(OSError):
                return connected(address.read_text(), STAY)
        return None

    def _started(self, environment: dict[str, str]) -> socket.socket:
        name = f"\0vsehub-tests-{os.getpid()}-{time.monotonic_ns()}"  # an abstract address: no file, so no long path
        with (self.folder / "warm.log").open("w") as log:
            command = [sys.executable, __file__, name[1:]]
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        (self.folder / "warm.address").write_text(name)
        until = time.monotonic() + STARTED
        while process.poll() is None and time.monotonic() < until:
            with suppress(OSError):
                return connected(name, STAY)
            time.sleep(0.02)
        raise RuntimeError(f"the warm process did not start:\n{(self.folder / 'warm.log').read_text()}")

    def close(self) -> None:
        """Leave; the process ends when all have left."""
        self._stays.close()

    def start(self, arguments, cwd, environment, out: Path, err: Path, script: Path | str | None = None) -> "Command":
        """Start a command, or with its arguments a script: a file, or the name of a module below the root."""
        asked = {
            "arguments": [str(one) for one in arguments],
            "cwd": str(Path(cwd).absolute()),
            "environment": environment,
            "streams": [str(out), str(err)],
            "script": script and str(script),
        }
        return Command(connected((self.folder / "warm.address").read_text(), json.dumps(asked).encode() + b"\n"))

    def run(self, arguments, cwd, environment, limit: float, script: Path | str | None = None) -> SimpleNamespace:
        """Run a command to its end, which must come within `limit` seconds; its status, out and err."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            out, err = Path(folder) / "out", Path(folder) / "err"
            command = self.start(arguments, cwd, environment, out, err, script)
            try:
                status = command.wait(limit)
            except subprocess.TimeoutExpired:
                command.kill()
                raise
            return SimpleNamespace(status=status, out=out.read_text(), err=err.read_text())


class Command:
    """A command that has been started: as much of `subprocess.Popen` as tests use."""

    def __init__(self, connection: socket.socket):
        self._lines = connection.makefile()
        connection.close()
        self.pid = json.loads(self._lines.readline())
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The status, below 0 after a signal; None while it runs."""
        return self.wait(0) if select.select([self._lines], [], [], 0)[0] else self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the end; the status."""
        if self.returncode is None:
            if not select.select([self._lines], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(f"the command {self.pid}", timeout)
            line = self._lines.readline()
            assert line, f"the warm process lost the command {self.pid}"
            self.returncode = json.loads(line)
            self._lines.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def connected(name: str, first: bytes) -> socket.socket:
    """A connection on which `first` has been sent."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(name)
    connection.sendall(first)
    return connection


def serve(name: str) -> None:
    """Import everything, then fork for each request, until all that said they stay have gone."""
    sys.path.insert(0, str(TORTURE))
    import gc

    import forked
    from hydra._internal.hydra import Hydra
    from inputs import load
    from omegaconf import OmegaConf

    load()
    Hydra.get_mode = one_mode
    parse_once(setattr)
    for file in (ROOT / "conf").rglob("*.yaml"):
        OmegaConf.load(file)
    gc.collect()
    gc.freeze()  # a child's collections leave these pages as they are, shared
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"\0{name}")
    listening.listen(64)
    staying: list[socket.socket] = []
    begun = False
    while staying or not begun:
        for one in select.select([listening, *staying], [], [], 0.5)[0]:
            if one is not listening:
                staying.remove(one)
                one.close()
                continue
            connection, _ = listening.accept()
            first = connection.makefile("rb").readline()
            if first == STAY:
                staying.append(connection)
                begun = True
            else:
                if os.fork() == 0:
                    for other in (listening, *staying):
                        other.close()
                    with suppress(BrokenPipeError):
                        answer(connection, json.loads(first), forked)
                    os._exit(0)
                connection.close()
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def answer(connection: socket.socket, asked: dict, forked) -> None:
    """Run what is asked for; its process id is sent when it begins, its status when it has ended."""

    def environment() -> None:
        connection.close()
        os.environ.clear()
        os.environ.update(asked["environment"])
        if os.environ.pop("UNDRAWN", ""):
            leave_figures_undrawn(setattr)

    def script() -> None:
        subprocess.run = functools.partial(run, forked, subprocess.run)
        file = Path(asked["script"])
        sys.argv[0] = str(file)
        if file.suffix == ".py":
            sys.path[0] = str(file.parent)
            runpy.run_path(str(file), run_name="__main__")
        else:
            sys.path[0] = str(ROOT)
            runpy.run_module(str(file), run_name="__main__", alter_sys=True)

    streams = tuple(Path(one) for one in asked["streams"])
    main = script if asked["script"] else None
    running = forked.Running(asked["arguments"], Path(asked["cwd"]), environment, log=streams, main=main)
    connection.sendall(f"{running.pid}\n".encode())
    running.wait(limit=float("inf"))
    connection.sendall(f"{os.waitstatus_to_exitcode(running._status)}\n".encode())


def one_mode(hydra, config_name, overrides) -> None:
    """In place of `Hydra.get_mode`, which composes all for the setting hydra.mode alone: nothing here sets it."""


def parse_once(patch: Callable) -> None:
    """Have OmegaConf parse equal YAML once, however often it is composed, by `patch`, which is called as `setattr`."""
    import yaml

    load, known = yaml.load, {}

    def parsed(stream, Loader):
        if Loader.__name__ != "OmegaConfLoader":
            return load(stream, Loader)
        text = stream if isinstance(stream, str) else stream.read()
        if text not in known:
            known[text] = load(text, Loader)
        return copy.deepcopy(known[text])

    patch(yaml, "load", parsed)


def leave_figures_undrawn(patch: Callable) -> None:
    """Have figures saved as pictures of one pixel, by `patch`, which is called as `setattr`."""
    from matplotlib.figure import Figure
    from PIL import Image

    def save(figure, file, format, **settings):
        if format == "svg":
            file.write(b'<svg xmlns="http://www.w3.org/2000/svg" width="1" height="1"></svg>')
        else:
            Image.new("RGB", (1, 1)).save(file, format)

    patch(Figure, "savefig", save)


def run(forked, run_anything, command, check=False, **settings) -> subprocess.CompletedProcess:
    """What a script's `subprocess.run` does: `vsehub` with the script's own streams is a fork too."""
    if Path(command[0]).name != "vsehub" or settings:
        return run_anything(command, check=check, **settings)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            sys.argv = ["vsehub", *map(str, command[1:])]
            status = forked.called(None)
            for stream in (sys.stdout, sys.stderr):
                stream.flush()
        finally:
            os._exit(status)
    done = subprocess.CompletedProcess(command, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
    if check:
        done.check_returncode()
    return done


if __name__ == "__main__":
    serve(sys.argv[1])
