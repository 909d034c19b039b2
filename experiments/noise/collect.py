"""results.csv of the study from its run folders, a row a finished run; `render.py` draws them.

python experiments/noise/collect.py RUNS [--clean FOLDER] [--to STUDY_FOLDER]
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.recipes import NOISE, differing, recipe
from vsehub.report.runs import Run, find_runs

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from study import CLEAN, LOSSES, PROTOCOLS  # noqa: E402 (beside this file, found by the line above)

RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")
FIGURES = (*RECALLS, "rsum", "hubness/hs_sum")
KEYS = ["loss", "protocol", "rate", "seed"]


def rows(folders: list[Path]) -> pd.DataFrame:
    """A row a run, in a fixed order. InputError where the runs of a loss differ in more than noise and seed."""
    found, recipes = [], {}
    for path in find_runs(folders):
        record = json.loads((path / "run.json").read_text())
        label = record["label"]
        if label not in LOSSES:
            continue
        if record["status"] != "finished":
            print(f"left out, {record['status']}: {path}", file=sys.stderr)
            continue
        own = recipe(Run(str(path), record, {}, pd.DataFrame()))
        del own[NOISE]
        keys = differing([recipes.setdefault(label, own), own])
        require(not keys, f"{path} was trained otherwise than other runs of {label}: {', '.join(keys)} differ")
        found.append(row(record))
    frame = pd.DataFrame(found)
    twice = frame.duplicated(KEYS)
    require(not twice.any(), f"runs of the same case and seed: {frame.loc[twice, KEYS].to_dict('records')}")
    orders = {"loss": LOSSES, "protocol": (CLEAN, *PROTOCOLS)}
    ranks = {name: {value: rank for rank, value in enumerate(order)} for name, order in orders.items()}
    return frame.sort_values(
        ["protocol", "rate", "loss", "seed"],
        key=lambda column: column.map(ranks[column.name]) if column.name in ranks else column,
        ignore_index=True,
    )


def row(record: dict) -> dict:
    """What results.csv holds of a run."""
    noise = record.get("noise") or {"protocol": CLEAN, "rate": 0.0, "changed": 0.0}
    return (
        {"loss": record["label"], "protocol": noise["protocol"], "rate": noise["rate"], "seed": record["seed"]}
        | {"changed": round(noise["changed"], 4), "dataset": record["dataset"], "epochs": record["epochs"]}
        | {"best_epoch": record["best"]["epoch"], "val_rsum": round(record["best"]["val/rsum"], 2)}
        | {figure: round(record["metrics"][f"test/{figure}"], 3) for figure in FIGURES}
        | {"collapsed": record.get("collapsed") is not None, "seconds": round(record["wall_seconds"])}
        | {"hardware": record["hardware"]["gpu"] or record["hardware"]["cpu"]}
    )


def main() -> None:
    """Read the command line and write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder that study.py wrote")
    parser.add_argument("--clean", type=Path, metavar="FOLDER", help="of runs without noise, where they lie elsewhere")
    parser.add_argument("--to", type=Path, default=HERE, metavar="STUDY_FOLDER", help="default: the study's own")
    arguments = parser.parse_args()
    folders = [arguments.runs, *([arguments.clean] if arguments.clean else [])]
    write_text(arguments.to / "results.csv", rows(folders).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
