"""runs.csv and README's tables from what study.py trained and measured.

python experiments/regularisation/collect.py runs/regularisation    these runs replace their rows, the others stay
python experiments/regularisation/collect.py                        the tables again, from runs.csv
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.tables import ReportTable, spread_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)
from study import CASES, WITHOUT, folder  # noqa: E402 (beside this file)

TEST = {"nns": "test_nns", "is": "test_is", "sinkhorn": "test_sinkhorn"}
SHOWN = {
    "val_rsum": "val",
    "test_nns": "test, plain",
    "test_is": "test, is",
    "test_sinkhorn": "test, sinkhorn",
}


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


def joined(old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """The rows of both, the new one where both have a run; in the order of the cases and seeds."""
    frame = pd.concat([old, new]).drop_duplicates(["case", "seed"], keep="last")
    frame["place"] = frame["case"].map(list(CASES).index)
    return frame.sort_values(["place", "seed"]).drop(columns="place")


def means(frame: pd.DataFrame) -> ReportTable:
    """A row for each case."""
    return over_seeds({case: frame[frame["case"] == case] for case in CASES}, "regularisation", 1)


def over_none(frame: pd.DataFrame) -> ReportTable:
    """What each case of two seeds or more adds to the case without regularisation, with the same seed."""
    runs = {case: frame[frame["case"] == case].set_index("seed")[list(SHOWN)] for case in CASES}
    gains = {case: (runs[case] - runs[without]).dropna(how="all") for case, without in WITHOUT.items()}
    return over_seeds(gains, "over none", 2)


def over_seeds(runs: dict[str, pd.DataFrame], title: str, fewest: int) -> ReportTable:
    """A row for each case that has the fewest seeds or more: mean ± standard deviation of `SHOWN`."""
    rows = [
        [case, str(len(own)), *(spread_text(own[column].mean(), own[column].std(), 1) for column in SHOWN)]
        for case, own in runs.items()
        if len(own) >= fewest
    ]
    return ReportTable([title, "seeds", *SHOWN.values()], rows)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    runs = parser.parse_args().folder
    frame = pd.read_csv(HERE / "runs.csv")
    if runs is not None:
        frame = joined(frame, collected(runs))
        write_text(HERE / "runs.csv", frame.to_csv(index=False, float_format="%.6g"))
    renew(HERE / "README.md", means(frame).markdown(), "means")
    renew(HERE / "README.md", over_none(frame).markdown(), "over none")


if __name__ == "__main__":
    main()
