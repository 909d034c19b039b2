"""Commands side by side: the first that fails ends the others, which are not left behind."""

import re
import sys
import time

from experiments import __main__ as program
from experiments import running


def test_a_failure_ends_the_other_chains_and_lines_carry_their_chains_name(tmp_path, monkeypatch, capfd):
    command = tmp_path / "vsehub"
    command.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nname, seconds, status = sys.argv[1:]\n"
        "print('threads', os.environ['OMP_NUM_THREADS'], flush=True)\ntime.sleep(float(seconds))\n"
        "print('end of', name)\nsys.exit(int(status))\n"
    )
    command.chmod(0o755)
    monkeypatch.setattr(running, "VSEHUB", command)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start = time.perf_counter()
    chains = {"long": [["long", "60", "0"], ["after", "0", "0"]], "bad": [["fine", "0", "0"], ["bad", "0.5", "3"]]}
    failed = running.run_chains(chains | {"never": [["never", "0", "0"]]}, 2, 6)
    assert failed[0] == "vsehub bad 0.5 3"
    assert time.perf_counter() - start < 30
    printed = capfd.readouterr().out.splitlines()
    assert {"long | threads 1", "bad | threads 1", "bad | end of fine", "bad | [3/6] vsehub bad 0.5 3"} <= set(printed)
    assert not [line for line in printed if "end of long" in line or "after" in line or "never" in line]


def test_the_help_names_studies_that_exist_and_defaults_that_are_used(capsys):
    named = set(re.findall(r"experiments (\w+)", program.__doc__)) - {"NAME"}
    assert named <= dict(program.headings(program.HERE)).keys() | program.TOOLS.keys()
    program.main(["compare", "--out", "there", "--losses", "hal", "--dry-run"])
    printed = capsys.readouterr().out
    assert re.findall(r"\bseed=(\d+)", printed) == ["0"]
    assert "default: 0" in program.parser("compare")._subparsers._group_actions[0].choices["compare"].format_help()
