"""Runs vsehub commands for the studies: finished runs are skipped, killed ones go on."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

VSEHUB = Path(sys.executable).with_name("vsehub")


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
    found = {"seed": record["seed"], "images": record["data"]["test"]["images"], "best_epoch": best["epoch"]}
    return found | {"val_rsum": best["val/rsum"], "rsum": test["test/rsum"], "hs_sum": test["test/hubness/hs_sum"]}


def training(folder: Path, overrides: list[str]) -> list[str] | None:
    """The command that trains the run of `folder` or goes on with it; None where it is finished."""
    state = status(folder)
    if state == "finished":
        return None
    options = [one for one in overrides if one.startswith("--")]
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
