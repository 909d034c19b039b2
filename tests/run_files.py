"""What the files of a run say."""

import csv

TIMES = {"seconds", "val/seconds", "bank/seconds"}


def rows(run):
    """metrics.csv without what the clock says."""
    with (run / "metrics.csv").open() as handle:
        return [{name: value for name, value in row.items() if name not in TIMES} for row in csv.DictReader(handle)]
