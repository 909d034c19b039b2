"""Runs vsehub commands for the studies: finished runs are skipped, killed ones go on."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

VSEHUB = Path(sys.executable).with_name("vsehub")
SECONDS = {"train": 60, "evaluate": 5, "report": 6}  # of experiment=demo on one core


def status(folder: Path) -> str | None:
    """A run's status from its record, or None without a record."""
    record = folder / "run.json"
    return json.loads(record.read_text())["status"] if record.is_file() else None


def results(folder: Path) -> dict[str, float] | None:
    """Metrics of a finished run: its best epoch by validation rsum, and the plain metrics of the test split."""
    if status(folder) != "finished":
        return None
    record = json.loads((folder / "run.json").read_text())
    best, test = record["best"], record["metrics"]
    row = {"seed": record["seed"], "images": record["data"]["test"]["images"], "best_epoch": best["epoch"]}
    return row | {"val_rsum": best["val/rsum"], "rsum": test["test/rsum"], "hs_sum": test["test/hubness/hs_sum"]}


def training(folder: Path, overrides: list[str]) -> list[str] | None:
    """The command that trains the run of `folder` or goes on with it; None where it is finished."""
    state = status(folder)
    if state == "finished":
        return None
    options = [word for word in overrides if word.startswith("--")]
    return ["train", *([f"resume={folder}", *options] if state else [*overrides, f"hydra.run.dir={folder}"])]


def typed(command: list[str]) -> str:
    """The command as it is typed."""
    return shlex.join(["vsehub", *command])


def run(command: list[str], title: str) -> bool:
    """Print and run a command; whether it succeeded."""
    print(f"{title} {typed(command)}", flush=True)
    return subprocess.run([VSEHUB, *command]).returncode == 0


def run_all(commands: list[list[str]], dry_run: bool = False) -> list[str]:
    """Run commands one after the other, or with `dry_run` only print them; the lines of those that failed."""
    failed = []
    for number, command in enumerate(commands, 1):
        title = f"[{number}/{len(commands)}]"
        if dry_run:
            print(f"{title} {typed(command)}")
        elif not run(command, title):
            failed.append(typed(command))
    return failed


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_chains(chains: Mapping[str, Sequence[list[str]]], jobs: int, total: int) -> list[str]:
    """Run each chain's commands in order, `jobs` chains side by side; the first command that fails ends the others.

    Side by side each command has one thread, and its lines follow the chain's name. total: commands to announce, with
    those that come after. Returns the commands that failed or were ended, the first failure first.
    """
    numbers = count(1)
    running: list[subprocess.Popen[str]] = []
    failed: list[str] = []

    def end(reason: str) -> None:
        failed.append(reason)
        for process in running:
            process.terminate()

    def go(name: str) -> None:
        start, piped = (f"{name} | ", subprocess.PIPE) if jobs > 1 else ("", None)
        for command in chains[name]:
            if failed:
                return
            # The end of the line in the same write: other chains print too.
            print(f"{start}[{next(numbers)}/{total}] {typed(command)}\n", end="", flush=True)
            process = subprocess.Popen(
                [VSEHUB, *command],
                env=({"OMP_NUM_THREADS": "1"} if piped else {}) | os.environ,
                stdout=piped,
                stderr=piped and subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            running.append(process)
            if failed:  # while it started
                process.terminate()
            for line in process.stdout or ():
                print(start + re.sub(r"^(\[[^]]*\]){2}\[INFO\] - ", "", line), end="", flush=True)
            if process.wait():
                end(typed(command))

    with ThreadPoolExecutor(jobs) as pool:
        try:
            list(pool.map(go, chains))
        except BaseException:
            end("interrupted")
            raise
    return failed


def duration(commands: Sequence[list[str]], jobs: int = 1) -> str:
    """How long commands of experiment=demo take about, `jobs` at a time."""
    seconds = sum(SECONDS[command[0]] * (3 if "similarity=scan_t2i" in command else 1) for command in commands)
    return f"about {1 + seconds // jobs // 60} min"
