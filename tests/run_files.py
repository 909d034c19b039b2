"""What the files of a run say."""

import csv
import json

TIMES = {"seconds", "val/seconds", "bank/seconds"}


def record(run):
    """run.json."""
    return json.loads((run / "run.json").read_text())


def rows(run):
    """metrics.csv without what the clock says."""
    with (run / "metrics.csv").open() as handle:
        return [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(handle)]
