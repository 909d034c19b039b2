"""Put the study's figures together: results.csv and pilot.csv from its run folders; then `render.py`.

    python experiments/architectures/collect.py runs/architectures --pilot runs/pilot

The second folder is that of the runs that chose the settings.
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from study import ARCHITECTURES, LOSSES  # noqa: E402 (found by the line above)

RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")
FIGURES = (*RECALLS, "rsum", "hubness/hs_sum")


def rows(folder: Path) -> pd.DataFrame:
    """One row a finished run."""
    found = []
    for name in ARCHITECTURES:
        for path in sorted((folder / name / "runs").glob("*/run.json")):
            record = json.loads(path.read_text())
            if record["status"] != "finished":
                print(f"left out, {record['status']}: {path.parent}", file=sys.stderr)
                continue
            history = pd.read_csv(path.parent / "metrics.csv")
            found.append(
                {"architecture": name, "loss": record["label"], "seed": record["seed"], "epochs": record["epochs"]}
                | {"best_epoch": record["best"]["epoch"], "val_rsum": round(record["best"]["val/rsum"], 2)}
                | {figure: round(record["metrics"][f"test/{figure}"], 3) for figure in FIGURES}
                | {"seconds_an_epoch": round(float(history["seconds"].median()), 1)}
                | {"memory_mb": record["peak_memory"]["host_mb"], "hardware": record["hardware"]["cpu"]}
                | {"shortlist_recall": _last(history, "bank/shortlist_recall")}
            )
    frame = pd.DataFrame(found)
    frame["loss"] = pd.Categorical(frame["loss"], LOSSES)
    frame["architecture"] = pd.Categorical(frame["architecture"], list(ARCHITECTURES))
    return frame.sort_values(["architecture", "loss", "seed"]).reset_index(drop=True)


def _last(history: pd.DataFrame, column: str) -> float | None:
    values = history[column].dropna() if column in history else []
    return round(float(values.iloc[-1]), 3) if len(values) else None


def pilot(folder: Path) -> pd.DataFrame:
    """One row a run that chose a setting: the setting, and rsum on val epoch by epoch."""
    found = []
    for path in sorted(folder.glob("*/run.json")):
        record = json.loads(path.read_text())
        config, history = record["config"], pd.read_csv(path.parent / "metrics.csv")
        found.append(
            {"similarity": config["similarity"]["_target_"].split(".")[-1], "loss": record["label"]}
            | {"lr": config["optimizer"]["lr"]}
            | {name: config["loss"].get(name) for name in ("gamma", "epsilon")}
            | {"seed": record["seed"], "dim": config["embedding_dim"]}
            | {"val_rsum_by_epoch": " ".join(f"{value:.1f}" for value in history["val/rsum"])}
        )
    return pd.DataFrame(found)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, help="the folder that study.py wrote")
    parser.add_argument("--pilot", type=Path, help="a folder of the runs that chose the settings")
    arguments = parser.parse_args()
    frame = rows(arguments.runs)
    if arguments.pilot is not None:
        write_text(HERE / "pilot.csv", pilot(arguments.pilot).to_csv(index=False, lineterminator="\n"))
    write_text(HERE / "results.csv", frame.to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
