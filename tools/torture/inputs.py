"""Malformed inputs, and odd but legal ones, each given to a command of vsehub in a process of its own.

The cases are data, in inputs.yaml. Torch, Lightning and Hydra are imported once, in the parent; each case is a fork of
it, in a folder of its own, through the entry point of the console script. A case is right if the status is the expected
one, the message matches, an error is one line that begins with the command's name, no traceback is shown, and a refused
input has left nothing behind.

    python tools/torture/inputs.py [--only REGEX] [--seconds S] [--seed N] [--jobs N]
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # forks of a process with a pool of threads may hang

import argparse
import pkgutil
import random
import re
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import forked
import yaml
from input_setups import MADE, SHORT, TRAINED, place, write

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
# Beside the one line of an error: log lines, warnings and the line of code that Python shows below one, progress bars.
ASIDE = re.compile(
    r"^\[\d{4}-\d\d-\d\d|\w*Warning: |^  \S|^\s*$|\d+%\||^\s*\d+ \w+ \[|^INFO |"
    r"^Error executing job|^wandb: |^GPU available|^TPU "
)


@dataclass(frozen=True)
class Case:
    """One input. says: a regular expression that stdout and stderr together match. given: names of set-ups.

    files: what else lies in the folder, as `input_setups.write` takes it. output: a device where stdout goes. user:
    "nobody", for what root may do and others may not. cwd: "gone": the working folder is removed. process: a Python of
    its own, for what it reads as it starts. leaves: files may be left although the input was refused.
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
    cwd: str | None = None
    process: bool = False
    leaves: bool = False


def read_cases() -> list[Case]:
    """The cases of the table: of each family, `command` with each entry's arguments, and options of both."""
    cases = []
    for family, content in yaml.load(TABLE.read_text(encoding="utf-8"), yaml.CSafeLoader).items():
        defaults = {key: value for key, value in content.items() if key not in ("command", "cases")}
        for words, says, *more in content["cases"]:
            options = {"says": says} | defaults | (more[0] if more else {})
            both = [*shlex.split(content["command"]), *(shlex.split(words) if isinstance(words, str) else words)]
            arguments = [word for part in both for word in (SHORT if part == "SMALL" else (part,))]
            options["given"] = tuple(dict.fromkeys((*defaults.get("given", ()), *options.get("given", ()))))
            cases.append(Case(f"{family}: {options.pop('name', words)}", tuple(arguments), **options))
    return cases


class Harness:
    """Set-ups made once, below a temporary folder, and cases run in forks."""

    def __init__(self):
        load()
        for name in [name for name in os.environ if name.startswith(("WANDB", "VSEHUB"))]:
            del os.environ[name]
        self.root = Path(tempfile.mkdtemp(prefix="vsehub-torture-")).resolve()
        self.root.chmod(0o755)
        self.shared, self.number = self.root / "shared", 0
        self.environment = {"WANDB_MODE": "offline", "HF_HUB_OFFLINE": "1"}
        for variable in ("XDG_CACHE_HOME", "XDG_STATE_HOME", "HOME", "MPLCONFIGDIR"):
            (self.root / variable).mkdir()
            (self.root / variable).chmod(0o777)
            self.environment[variable] = str(self.root / variable)

    def prepare(self, name: str) -> None:
        """Make a set-up, once."""
        name = "run" if name == "broken" else name
        folder = self.shared / name
        if folder.exists():
            return
        before, commands = TRAINED.get(name, ((), []))
        for earlier in before:
            self.prepare(earlier)
        folder.mkdir(parents=True)
        for earlier in before:
            place(earlier, self.shared, folder)
        if name in MADE:
            MADE[name](folder)
        for command in commands:
            came = self.start(Case(name, tuple(command.split())), folder, self.root / "set-ups").result()
            if came.status != 0:
                raise RuntimeError(f"the set-up {name} failed with status {came.status}:\n{came.out}\n{came.err}")

    def run(self, cases: Sequence[Case], until: float, jobs: int) -> Iterator[tuple[Case, forked.Ended, list[str]]]:
        """Each case, what came of it, and which files it changed: `jobs` at a time, until the time is over."""
        for name in dict.fromkeys(name for case in cases for name in case.given):
            self.prepare(name)
        waiting, running = list(reversed(cases)), []
        while waiting or running:
            waiting = waiting if time.monotonic() < until else []
            while waiting and len(running) < jobs:
                case = waiting.pop()
                folder = self.folder(case)
                running.append((case, folder, listing(folder), self.start(case, folder, folder.parent)))
            for entry in list(running):
                case, folder, before, process = entry
                late = time.monotonic() - process.began > LIMIT and process.send(signal.SIGKILL)
                if late or process.poll():
                    running.remove(entry)
                    came, after = process.result(), listing(folder)
                    left = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
                    shutil.rmtree(folder.parent, ignore_errors=True)
                    yield case, replace(came, status=None) if late else came, left
            time.sleep(0.01)

    def folder(self, case: Case) -> Path:
        """A case's folder, filled."""
        self.number += 1
        folder = self.root / "cases" / str(self.number) / "here"
        folder.mkdir(parents=True)
        for name in case.given:
            place(name, self.shared, folder)
        for name, content in case.files.items():
            write(folder / name, content, folder)
        for path in [folder, *folder.rglob("*")] if case.user else ():
            if path.stat().st_mode & 0o200:
                os.chown(path, NOBODY, NOBODY)
        return folder

    def start(self, case: Case, folder: Path, outside: Path) -> forked.Running:
        """Start a case in its folder; its output and temporary files lie outside."""
        (outside / "tmp").mkdir(parents=True, exist_ok=True)
        (outside / "tmp").chmod(0o777)

        def before() -> None:
            os.environ.update({name: value for name, value in case.env.items() if value is not None})
            for name in [name for name, value in case.env.items() if value is None]:
                os.environ.pop(name, None)
            tempfile.tempdir = None
            if case.cwd == "gone":
                shutil.rmtree(folder)
            if case.output:
                os.dup2(os.open(case.output, os.O_WRONLY), 1)
            if case.user and os.getuid() == 0:
                os.setgroups([])
                os.setgid(NOBODY)
                os.setuid(NOBODY)
            if case.process:
                os.execv(sys.executable, [sys.executable, "-m", "vsehub", *case.arguments])

        environment = self.environment | {"TMPDIR": str(outside / "tmp")}
        return forked.Running(case.arguments, folder, before, environment, (outside / "out", outside / "err"))


def load() -> Callable[[], None]:
    """The entry point, with all that commands import in memory."""
    import torch

    import vsehub

    torch.set_num_threads(1)
    modules = [module.name for module in pkgutil.walk_packages(vsehub.__path__, "vsehub.")]
    for name in (*modules, *IN_FUNCTIONS):
        with suppress(ImportError):  # of an optional library
            import_module(name)
    return import_module("vsehub.cli.main").main


def listing(folder: Path) -> dict[str, Any]:
    """What lies in a folder: size and time of each file."""
    outcomes: dict[str, Any] = {}
    for path in folder.rglob("*"):
        stat = path.lstat()
        is_folder = path.is_dir() and not path.is_symlink()
        outcomes[path.relative_to(folder).as_posix()] = "folder" if is_folder else (stat.st_size, stat.st_mtime_ns)
    return outcomes


def judged(case: Case, came: forked.Ended, left: Sequence[str] = ()) -> list[str]:
    """What is wrong with what came of a case, status None where it had to be killed. left: files that it changed."""
    if came.status is None:
        return [f"it was still at work after {LIMIT} s"]
    wrong = [f"{word!r} was shown" for word in came.broke]
    if came.status != case.status:
        wrong.append(f"expected status {case.status}, came {came.status}")
    lines = came.err.splitlines()
    of_command = [
        line for line in lines if re.match(rf"vsehub( {'|'.join(map(re.escape, case.arguments[:1]))})?: ", line)
    ]
    other = [line for line in lines if line not in of_command and not ASIDE.search(line)]
    if case.status == 0:
        wrong += [f"a line of an error came: {line}" for line in of_command]
    else:
        wrong += (
            [f"expected one line that begins with the command, came {len(of_command)}"] if len(of_command) != 1 else []
        )
        wrong += [f"other lines on stderr: {other[:3]}"] if other else []
        wrong += [f"left behind: {', '.join(left[:6])}"] if left and not case.leaves else []
    if not re.search(case.says, came.err if case.status else came.out + came.err, re.DOTALL):
        wrong.append(f"expected a message like {case.says!r}")
    return wrong


def run(seconds: float | None = None, seed: int = 0, only: str = "", jobs: int = 2) -> dict[str, Any]:
    """{"cases": how many were run, "wrong": texts}: all, or a sample by `seed` where seconds limit it."""
    chosen = [case for case in read_cases() if re.search(only, case.id)]
    if seconds is not None:
        random.Random(seed).shuffle(chosen)
    until, harness, count, wrong = time.monotonic() + (seconds or 1e9), Harness(), 0, []
    try:
        for case, came, left in harness.run(chosen, until, jobs):
            count += 1
            if fault := judged(case, came, left):
                said = (came.err.strip() or came.out.strip())[-1200:]
                wrong.append(f"{case.id}\n  {'; '.join(fault)}\n  came, with status {came.status}: {said}")
    finally:
        shutil.rmtree(harness.root, ignore_errors=True)
    return {"cases": count, "wrong": wrong}


def main() -> int:
    """Read the command line, run the cases, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="a regular expression of the ids")
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    result = run(**vars(parser.parse_args()))
    print(*result["wrong"], f"{result['cases']} cases, {len(result['wrong'])} wrong", sep="\n")
    return 1 if result["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main())
