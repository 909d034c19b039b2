"""`make gpu-check` runs at tiny sizes on the CPU; what benchmarks measure is not tested."""

import json
import re

import pytest

from experiments.benchmarks import gpu_check


def test_gpu_checks_hold_on_the_cpu(tmp_path):
    with pytest.raises(SystemExit, match="False"):
        gpu_check.main(["--device", "cpu", "--out", str(tmp_path / "rows.json")])
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [row for row in rows if row["holds"] is False] == []
    assert sum(row["holds"] is True for row in rows) >= 4
    assert [row for row in rows if row["holds"] is None and not re.search("[1-9]", row["found"])] == []
    assert sum("pairs/s" in row["found"] and "busy" in row["found"] for row in rows) == 3
