"""runs.csv and README's tables from what study.py trained and measured.

python experiments/regularisation/collect.py runs/regularisation
python experiments/regularisation/collect.py                        the table again, from runs.csv
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.tables import spread_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)
from study import CASES, folder  # noqa: E402 (beside this file)

TEST = {"nns": "test_nns", "is": "test_is", "sinkhorn": "test_sinkhorn"}


def collected(out: Path) -> pd.DataFrame:
    """A row for each finished run: its best epoch by validation rsum, and its rsum on test where it was measured."""
    rows = []
    for case in CASES:
        for path in sorted(out.glob(f"{folder(Path(), case, 0).name[:-1]}[0-9]*/run.json")):
            record = json.loads(path.read_text())
            if record["status"] != "finished":
                continue
            row = {
                "case": case,
                "seed": record["seed"],
                "best_epoch": record["best"]["epoch"],
                "val_rsum": record["best"]["val/rsum"],
            }
            for file in sorted((path.parent / "evaluations").glob("test-*.json")):
                one = json.loads(file.read_text())
                row[TEST[one["criterion"]]] = one["metrics"]["rsum"]
            rows.append(row)
    return pd.DataFrame(rows, columns=["case", "seed", "best_epoch", "val_rsum", *TEST.values()])


def table(frame: pd.DataFrame) -> str:
    """Markdown: a row for each run."""
    shown = frame.rename(
        columns={
            "case": "regularisation",
            "best_epoch": "best epoch",
            "val_rsum": "val",
            "test_nns": "test, plain",
            "test_is": "test, is",
            "test_sinkhorn": "test, sinkhorn",
        }
    )
    for column in shown.columns[3:]:
        shown[column] = [spread_text(value, float("nan"), 1) for value in shown[column]]
    return shown.to_markdown(index=False, disable_numparse=True, colalign=["left"] + ["right"] * (shown.shape[1] - 1))


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    runs = parser.parse_args().folder
    if runs is not None:
        write_text(HERE / "runs.csv", collected(runs).to_csv(index=False, float_format="%.6g"))
    renew(HERE / "README.md", table(pd.read_csv(HERE / "runs.csv")))


if __name__ == "__main__":
    main()
