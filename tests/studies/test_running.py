"""Commands side by side: the first that fails ends the others, which are not left behind."""

import sys
import time

from experiments import running


def test_a_failure_ends_the_other_chains_and_lines_carry_their_chains_name(tmp_path, monkeypatch, capfd):
    program = tmp_path / "vsehub"
    program.write_text(
        f"#!{sys.executable}\nimport os, sys, time\nname, seconds, status = sys.argv[1:]\n"
        "print('threads', os.environ['OMP_NUM_THREADS'], flush=True)\ntime.sleep(float(seconds))\n"
        "print('end of', name)\nsys.exit(int(status))\n"
    )
    program.chmod(0o755)
    monkeypatch.setattr(running, "VSEHUB", program)
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    start = time.perf_counter()
    chains = {"long": [["long", "60", "0"], ["after", "0", "0"]], "bad": [["fine", "0", "0"], ["bad", "0.5", "3"]]}
    failed = running.run_chains(chains | {"never": [["never", "0", "0"]]}, 2, 6)
    assert failed[0] == "vsehub bad 0.5 3"
    assert time.perf_counter() - start < 30
    printed = capfd.readouterr().out.splitlines()
    assert {"long | threads 1", "bad | threads 1", "bad | end of fine", "bad | [3/6] vsehub bad 0.5 3"} <= set(printed)
    assert not [line for line in printed if "end of long" in line or "after" in line or "never" in line]
