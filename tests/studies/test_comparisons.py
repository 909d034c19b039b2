"""The scripts that train and compare: what they would run, and what they say where data is missing."""

import json
import shlex

import pytest


def commands(printed):
    return [shlex.split(line.partition("] ")[2])[1:] for line in printed.splitlines() if line.startswith("[")]


@pytest.mark.parametrize(("status", "first"), [("finished", "report"), ("running", "train"), (None, "train")])
def test_what_is_done_is_not_done_again(script, tmp_path, status, first):
    folder = tmp_path / "runs" / "hal+mb-0"
    if status is not None:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"status": status}))
    found = commands(script("compare.py", "--out", tmp_path, "--losses", "hal+mb", "--dry-run").out)
    assert found[0][0] == first
    assert (f"resume={folder}" in found[0]) == (status == "running")
