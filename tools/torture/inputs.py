"""Malformed inputs, and odd but legal ones, each given to a command of vsehub in a process of its own.

The cases are data, in inputs.yaml. Torch, Lightning and Hydra are imported once, in the parent; each case is a fork of
it, in a folder of its own, through the entry point of the console script. A case is right if the status is the expected
one, the message matches, an error is one line that begins with the command's name, no traceback is shown, and a refused
input has left nothing behind.

    python tools/torture/inputs.py [--only REGEX] [--cases N] [--seconds S] [--seed N] [--jobs N] [--show]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forks of a process with a pool of threads may hang

import argparse
import io
import pkgutil
import random
import re
import shlex
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml
from input_setups import MADE, SHORT, TRAINED, place, tidy, write

TABLE = Path(__file__).parent / "inputs.yaml"
LIMIT = 60  # seconds a case may take
NOBODY = 65534
# Imported by vsehub where they are needed alone.
IN_FUNCTIONS = (
    "torchvision.models",
    "timm",
    "transformers",
    "wandb_workspaces.workspaces",
    "matplotlib.pyplot",
    "faiss",
)
OPTIONS = ("says", "status", "files", "given", "env", "output", "user", "process", "leaves", "owner", "name")
# Beside the one line of an error: log lines, warnings and the line of code that Python shows below one, progress bars.
ASIDE = re.compile(
    r"^\[\d{4}-\d\d-\d\d|\w*Warning: |^  \S|^\s*$|\d+%\||^\s*\d+ \w+ \[|^INFO |^wandb: |^GPU available|^TPU "
    r"|^Error executing job "  # Hydra's, before the line of the first failed job of a sweep
)


@dataclass(frozen=True)
class Case:
    """One input. says: a regular expression that stdout and stderr together match. given: names of set-ups.

    files: what else lies in the folder, as `input_setups.write` takes it. output: where stdout goes, "closed" or a
    device. user: "nobody", for what root may do and others may not.
    process: a Python of its own, for what it reads as it starts. leaves: files may be left although the input was
    refused.
    """

    id: str
    arguments: tuple[str, ...]
    says: str = ""
    status: int = 2
    given: tuple[str, ...] = ()
    files: dict[str, Any] = field(default_factory=dict)
    env: dict[str, str | None] = field(default_factory=dict)
    output: str | None = None
    user: str | None = None
    process: bool = False
    leaves: bool = False
    owner: str | None = None


@dataclass(frozen=True)
class Came:
    """What came of a case. left: what is new, changed or gone in its folder."""

    status: int | None
    out: str
    err: str
    left: list[str]
    seconds: float


def read_cases(path: Path = TABLE) -> list[Case]:
    """The cases of a table: of each family, `command` with each entry's arguments, and options of both."""
    found: dict[str, Case] = {}
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C takes a tenth of the time
    for family, told in yaml.load(path.read_text(encoding="utf-8"), loader).items():
        own = {key: value for key, value in told.items() if key not in ("command", "cases")}
        for entry in told["cases"]:
            words, says, *more = [entry] if isinstance(entry, str) else entry
            options = own | (more[0] if more else {})
            unknown = set(options) - set(OPTIONS)
            if unknown:
                raise ValueError(f"{family}: {words}: no options of a case: {', '.join(unknown)}")
            arguments = [word for part in (told["command"], words) for word in _words(part)]
            name = f"{family}: {options.pop('name', words)}"
            if name in found:
                raise ValueError(f"{name} comes twice; give one of them a name")
            options["given"] = tuple(own.get("given", ())) + tuple((more[0] if more else {}).get("given", ()))
            options["files"] = own.get("files", {}) | (more[0].get("files", {}) if more else {})
            found[name] = Case(name, tuple(arguments), **{"says": says} | options)
    return list(found.values())


def _words(part: str | list[str]) -> Iterator[str]:
    for word in shlex.split(part) if isinstance(part, str) else part:
        yield from SHORT if word == "SMALL" else (word,)


class Harness:
    """Set-ups made once, below a temporary folder, and cases run in forks.

    main: what runs a command with sys.argv; None: that of the console script.
    """

    def __init__(self, main: Callable[[], None] | None = None):
        self.root = Path(tempfile.mkdtemp(prefix="vsehub-torture-")).resolve()
        self.root.chmod(0o755)
        self.main = load() if main is None else main
        self.shared, self.number = self.root / "shared", 0
        self.environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("WANDB", "VSEHUB"))
        }
        self.environment |= {"COLUMNS": "300", "WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
        for name, variable in (
            ("cache", "XDG_CACHE_HOME"),
            ("state", "XDG_STATE_HOME"),
            ("home", "HOME"),
            ("fonts", "MPLCONFIGDIR"),
        ):
            (self.root / name).mkdir()
            (self.root / name).chmod(0o777)
            self.environment[variable] = str(self.root / name)

    def close(self) -> None:
        """Remove all that was written."""
        tidy(self.root)

    def prepare(self, name: str) -> None:
        """Make a set-up, once."""
        name = "run" if name == "broken" else name
        folder = self.shared / name
        if folder.exists():
            return
        before, commands = TRAINED.get(name, ((), []))
        for one in before:
            self.prepare(one)
        folder.mkdir(parents=True)
        for one in before:
            place(one, self.shared, folder)
        if name in MADE:
            MADE[name](folder)
        for command in commands:
            words = shlex.split(command) if isinstance(command, str) else command
            case = Case(f"set-up {name}", tuple(words), status=0)
            came = self._wait(case, self._start(case, folder), folder, {})
            if came.status != 0:
                raise RuntimeError(f"the set-up {name} failed with status {came.status}:\n{came.out}\n{came.err}")

    def run(self, asked: Sequence[Case], seconds: float | None = None, jobs: int = 2) -> Iterator[tuple[Case, Came]]:
        """Each case and what came of it, `jobs` at a time, until the time is over."""
        until = None if seconds is None else time.monotonic() + seconds
        for name in dict.fromkeys(name for case in asked for name in case.given):
            self.prepare(name)
        waiting, running = list(reversed(asked)), []
        while waiting or running:
            over = until is not None and time.monotonic() > until
            while waiting and len(running) < jobs and not over:
                case = waiting.pop()
                folder = self._folder(case)
                before = listing(folder)
                running.append((case, self._start(case, folder), folder, before))
            if over:
                waiting = []
            for one in list(running):
                case, process, folder, before = one
                if process.ended():
                    running.remove(one)
                    yield case, self._wait(case, process, folder, before)
            time.sleep(0.01)

    def _folder(self, case: Case) -> Path:
        self.number += 1
        folder = self.root / "cases" / str(self.number) / "here"
        folder.mkdir(parents=True)
        for name in case.given:
            place(name, self.shared, folder)
        for name, content in case.files.items():
            write(folder / name, content, folder)
        if case.user:
            for path in [folder, *folder.rglob("*")]:
                if path.stat().st_mode & 0o200:
                    os.chown(path, NOBODY, NOBODY)
        return folder

    def _start(self, case: Case, folder: Path) -> "Process":
        outside = folder.parent if case.id.split(" ")[0] != "set-up" else self.root / "set-ups" / folder.name
        (outside / "tmp").mkdir(parents=True)
        (outside / "tmp").chmod(0o777)
        environment = self.environment | {"TMPDIR": str(outside / "tmp")}
        for name, value in case.env.items():
            environment.pop(name, None)
            if value is not None:
                environment[name] = value.replace("HERE", str(folder))
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            self._child(case, folder, outside, environment)
        return Process(pid, outside, LIMIT * (2 if case.process else 1))  # a Python of its own imports all anew

    def _child(self, case: Case, folder: Path, outside: Path, environment: dict[str, str]) -> None:
        status = 70
        try:
            os.setsid()
            os.chdir(folder)
            out = os.devnull if case.output == "closed" else case.output or outside / "out"
            files = os.open(out, os.O_WRONLY | os.O_CREAT), os.open(outside / "err", os.O_WRONLY | os.O_CREAT, 0o666)
            nothing = os.open(os.devnull, os.O_RDONLY)
            for number, file in enumerate((nothing, *files)):
                os.dup2(file, number)
            if case.output == "closed":
                os.close(1)
            if case.user and os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            os.environ.clear()
            os.environ.update(environment)
            tempfile.tempdir = None
            if case.process:
                code = "from vsehub.cli.main import main; main()"
                os.execve(sys.executable, [sys.executable, "-c", code, *case.arguments], environment)
            status = self._command(case)
        except BaseException:
            with suppress(OSError):
                os.write(2, traceback.format_exc().encode(errors="replace"))
        finally:
            os._exit(status)

    def _command(self, case: Case) -> int:
        """Run the command as the interpreter does: an error shown, the streams flushed; its status."""
        sys.stdout = None if case.output == "closed" else stream(1)
        sys.stderr = stream(2, errors="backslashreplace", line_buffering=True)
        sys.argv = ["vsehub", *case.arguments]
        warnings.resetwarnings()
        warnings.simplefilter("default")
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        status = 0
        try:
            self.main()
        except SystemExit as error:
            status = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
            if isinstance(error.code, str):
                print(error.code, file=sys.stderr)
        except BaseException:
            traceback.print_exc()
            status = 1
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        except OSError as error:
            print(f"Exception ignored while flushing sys.stdout: {error}", file=sys.stderr)
            status = 120
        sys.stderr.flush()
        return status

    def _wait(self, case: Case, process: "Process", folder: Path, before: dict[str, Any]) -> Came:
        status = process.wait()
        read = {name: process.folder / name for name in ("out", "err")}
        texts = {name: path.read_text(errors="replace") if path.exists() else "" for name, path in read.items()}
        after = listing(folder)
        left = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
        if not case.id.startswith("set-up"):
            tidy(folder.parent)
        return Came(status, texts["out"], texts["err"], left, process.seconds)


class Process:
    """A forked case."""

    def __init__(self, pid: int, folder: Path, limit: float):
        self.pid, self.folder, self.limit, self.began = pid, folder, limit, time.monotonic()
        self.status: int | None = None
        self.seconds = 0.0
        self._over = False

    def ended(self) -> bool:
        """Whether it has ended; it is ended where it took too long."""
        pid, told = os.waitpid(self.pid, os.WNOHANG)
        if pid:
            self.status, self._over = os.waitstatus_to_exitcode(told), True
        elif time.monotonic() - self.began > self.limit:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self._over = True  # without a status: the limit
        self.seconds = time.monotonic() - self.began
        return self._over

    def wait(self) -> int | None:
        """The status; None where it took too long."""
        while not self._over and not self.ended():
            time.sleep(0.01)
        return self.status


def load() -> Callable[[], None]:
    """The entry point, with all that commands import in memory."""
    import torch

    import vsehub

    torch.set_num_threads(1)
    for one in pkgutil.walk_packages(vsehub.__path__, "vsehub."):
        with suppress(ImportError):  # of an optional library
            import_module(one.name)
    for name in IN_FUNCTIONS:
        with suppress(ImportError):
            import_module(name)
    return import_module("vsehub.cli.main").main


def stream(number: int, **settings: Any) -> io.TextIOWrapper:
    """A text stream of a file descriptor."""
    return io.TextIOWrapper(os.fdopen(number, "wb", closefd=False), "utf-8", **settings)


def listing(folder: Path) -> dict[str, Any]:
    """What lies in a folder: size and time of each file."""
    found: dict[str, Any] = {}
    for place_, folders, files in os.walk(folder):
        for name in files + folders:
            path = Path(place_) / name
            stat = path.lstat()
            found[path.relative_to(folder).as_posix()] = (stat.st_size, stat.st_mtime_ns) if name in files else "folder"
    return found


def judged(case: Case, came: Came) -> list[str]:
    """What is wrong with what came of a case."""
    if came.status is None:
        return [f"it was still at work after {LIMIT} s"]
    wrong = []
    if came.status != case.status:
        wrong.append(f"expected status {case.status}, came {came.status}")
    if "Traceback (most recent call last)" in came.out + came.err:
        wrong.append("a traceback was shown")
    lines = came.err.splitlines()
    command = "vsehub" if case.arguments[:1] == () else f"vsehub {case.arguments[0]}"
    own = [line for line in lines if re.match(rf"(vsehub|{re.escape(command)}): ", line)]
    other = [line for line in lines if line not in own and not ASIDE.search(line)]
    if case.status == 0:
        wrong += [f"a line of an error came: {line}" for line in own]
    else:
        if len(own) != 1:
            wrong.append(f"expected one line that begins with {command!r}, came {len(own)}")
        if other:
            wrong.append(f"other lines on stderr: {other[:3]}")
        if came.left and not case.leaves:
            wrong.append(f"left behind: {', '.join(came.left[:6])}")
    if not re.search(case.says, came.err if case.status else came.out + came.err, re.DOTALL):
        wrong.append(f"expected a message like {case.says!r}")
    if case.status and not came.err.strip():
        wrong.append("nothing was said")
    return wrong


def told(case: Case, came: Came, wrong: list[str]) -> str:
    """A text that says what was expected of a case and what came."""
    said = (came.err.strip() or came.out.strip())[-1200:]
    owner = f" (owner: {case.owner})" if case.owner else ""
    return f"{case.id}{owner}\n  {'; '.join(wrong)}\n  came, with status {came.status}: {said}"


def run(
    seconds: float | None = None,
    seed: int = 0,
    cases: int | None = None,
    only: str = "",
    jobs: int = 2,
    show: Callable[[Case, Came, list[str]], None] | None = None,
) -> dict[str, Any]:
    """{"cases": how many were run, "wrong": texts}: all, or a sample by `seed` where seconds or cases limit it."""
    asked = [case for case in read_cases() if re.search(only, case.id)]
    if cases is not None or seconds is not None:
        random.Random(seed).shuffle(asked)
        asked = asked[:cases]
    harness, count, wrong = Harness(), 0, []
    try:
        for case, came in harness.run(asked, seconds, jobs):
            found = judged(case, came)
            count += 1
            wrong += [told(case, came, found)] if found else []
            if show is not None:
                show(case, came, found)
    finally:
        harness.close()
    return {"cases": count, "wrong": wrong}


def main() -> int:
    """Read the command line, run the cases, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression of the ids")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, help="so many, drawn by the seed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--show", action="store_true", help="what came of every case")
    options = parser.parse_args()

    def show(case: Case, came: Came, wrong: list[str]) -> None:
        if wrong or options.show:
            print(f"{'WRONG ' if wrong else 'right '}{came.seconds:5.1f} s  {told(case, came, wrong)}", flush=True)

    began = time.monotonic()
    found = run(options.seconds, options.seed, options.cases, only=options.only, jobs=options.jobs, show=show)
    print(f"{found['cases']} cases, {len(found['wrong'])} wrong, {time.monotonic() - began:.0f} s")
    return 1 if found["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
