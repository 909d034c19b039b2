"""The scripts that train and compare: what they would run, and what they say where data is missing."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def script(name, *arguments, status=0):
    command = [sys.executable, ROOT / "experiments" / name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def commands(printed):
    return [shlex.split(line.partition("] ")[2])[1:] for line in printed.splitlines() if line.startswith("[")]


@pytest.mark.parametrize(("status", "first"), [("finished", "report"), ("running", "train"), (None, "train")])
def test_what_is_done_is_not_done_again(tmp_path, status, first):
    folder = tmp_path / "runs" / "hal+mb-0"
    if status is not None:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"status": status}))
    found = commands(script("compare.py", "--out", tmp_path, "--losses", "hal+mb", "--dry-run"))
    assert found[0][0] == first
    assert (f"resume={folder}" in found[0]) == (status == "running")
