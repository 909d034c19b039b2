"""The table of malformed inputs: a sample of it, and what its harness must not overlook."""

import re
import sys
import time
from collections import Counter
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "tools" / "torture"
# Families whose set-ups are made in a moment, or with one short training.
QUICK = "^(program|options|keys|choices|kinds|booleans|run folders|evaluate|rerank|tables|vectors|report|wandb)"


@pytest.fixture(scope="module")
def inputs():
    """The harness as a module, without leaving names behind."""
    sys.path.insert(0, str(FOLDER))
    yield import_module("inputs")
    sys.path.remove(str(FOLDER))
    for name in ("inputs", "input_setups"):
        del sys.modules[name]


def test_the_table_covers_every_command(inputs):
    found = inputs.read_cases()
    assert len(found) <= 400
    commands = Counter(case.arguments[0] for case in found if case.arguments)
    from vsehub.cli.main import COMMANDS

    assert all(commands[name] >= 5 for name in COMMANDS), commands
    assert sum(case.status == 0 for case in found) >= 40
    assert not [case.id for case in found if case.status and not case.says]


@pytest.mark.long
def test_a_sample(script):
    """Forks of a process that has imported all that commands do, so not of this one."""
    done = script("torture/inputs.py", "--cases", "40", "--seed", "2", "--only", QUICK, UNDRAWN="1")
    assert done.out.startswith("40 cases, 0 wrong")


@pytest.mark.long
def test_no_pipe_is_opened(script):
    """Opening one blocks until somebody writes to it; the harness ends a case after a minute."""
    done = script("torture/inputs.py", "--only", "^pipes in the place of (vectors|data)", UNDRAWN="1")
    assert re.match(r"\d+ cases, 0 wrong", done.out), done.out


def says(text, status=2, left=None):
    def main():
        if left:
            Path(left).write_text("left")
        print(text, file=sys.stderr)
        raise SystemExit(status)

    return main


def fails():
    raise ValueError("k is 0")


def hangs():
    time.sleep(30)


@pytest.mark.parametrize(
    ("main", "wrong"),
    [
        (says("vsehub rerank: k is 0; expected a whole number above 0"), None),
        (says("[2026-01-01 00:00:00,000] a line of a log\nvsehub rerank: k is 0; expected a number"), None),
        (fails, "a traceback was shown"),
        (lambda: None, "expected status 2, came 0"),
        (lambda: None, "nothing was said"),
        (says("vsehub rerank: k is 7"), "expected a message like"),
        (says("k is 0"), "expected one line that begins with 'vsehub rerank', came 0"),
        (says("vsehub rerank: k is 0\nand more"), "other lines on stderr: ['and more']"),
        (says("vsehub rerank: k is 0", left="half.npy"), "left behind: half.npy"),
        (says("vsehub rerank: k is 0", status=1), "expected status 2, came 1"),
        (hangs, "it was still at work after 1 s"),
    ],
)
def test_the_harness_catches(inputs, monkeypatch, main, wrong):
    monkeypatch.setattr(inputs, "LIMIT", 1)
    harness = inputs.Harness(main)
    try:
        case = inputs.Case("a case", ("rerank", "k=0"), says="k is 0")
        ((_, came),) = harness.run([case])
    finally:
        harness.close()
    found = inputs.judged(case, came)
    assert not harness.root.exists()
    assert (found == []) if wrong is None else any(wrong in one for one in found), found


def test_a_silent_refusal_of_what_is_legal_is_caught(inputs):
    case = inputs.Case("a case", ("diagnose",), says="written to", status=0)
    refused = inputs.Came(2, "", "vsehub diagnose: no\n", [], 0.1)
    assert any("expected status 0, came 2" in one for one in inputs.judged(case, refused))
    assert inputs.judged(case, inputs.Came(0, "written to x\n", "", ["x"], 0.1)) == []
