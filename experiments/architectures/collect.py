"""Put the study's evidence together: results.csv, pilot.csv, table.md and the README's generated part.

    python experiments/architectures/collect.py runs/architectures --pilot runs/pilot

The second folder is that of the runs that chose the settings.
"""

import argparse
import json
import statistics
import sys
from itertools import combinations
from pathlib import Path

import pandas as pd

from vsehub.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)
from study import ARCHITECTURES, LOSSES  # noqa: E402

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


def spread(values: pd.Series) -> float:
    """The sample standard deviation, 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def with_spread(values: pd.Series, digits: int = 1) -> str:
    """ "12.3 ± 0.4"."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {spread(values):.{digits}f}" if len(values) > 1 else mean


def table(frame: pd.DataFrame) -> str:
    """The means over the seeds, as markdown."""
    head = ["architecture", "loss", "seeds", *RECALLS, "rsum", "hs_sum", "s an epoch", "memory, MB"]
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---: |" * (len(head) - 3)]
    for (architecture, loss), runs in frame.groupby(["architecture", "loss"], observed=True):
        cells = [architecture, loss, ", ".join(map(str, runs["seed"]))]
        cells += [f"{runs[figure].mean():.1f}" for figure in RECALLS]
        cells += [with_spread(runs["rsum"]), with_spread(runs["hubness/hs_sum"], 2)]
        cells += [f"{runs['seconds_an_epoch'].median():.0f}", f"{runs['memory_mb'].max():,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def order(runs: pd.DataFrame) -> list[tuple[str, str, bool]]:
    """(better, worse, beyond the spread) of every two losses of one architecture, by mean rsum."""
    sums = {loss: group["rsum"] for loss, group in runs.groupby("loss", observed=True)}
    found = []
    for one, other in combinations(sums, 2):
        better, worse = sorted((one, other), key=lambda loss: -sums[loss].mean())
        lead = sums[better].mean() - sums[worse].mean()
        several = len(sums[better]) > 1 and len(sums[worse]) > 1
        found.append((better, worse, several and bool(lead > spread(sums[better]) + spread(sums[worse]))))
    return found


def verdicts(frame: pd.DataFrame) -> str:
    """Which order holds where, in sentences made from the figures; a lead of one seed counts as none."""
    orders = {name: order(runs) for name, runs in frame.groupby("architecture", observed=True)}
    lines = []
    for name, runs in frame.groupby("architecture", observed=True):
        means = runs.groupby("loss", observed=True)["rsum"].mean().sort_values(ascending=False)
        within = [f"{better} over {worse}" for better, worse, beyond in orders[name] if not beyond]
        lines.append(
            f"- **{name}**: {' > '.join(f'{loss} {mean:.1f}' for loss, mean in means.items())}."
            + (f" Within the spread of the seeds, or of one seed: {', '.join(within)}." if within else "")
        )
    pairs = {tuple(sorted(pair[:2], key=LOSSES.index)) for found in orders.values() for pair in found}
    for pair in sorted(pairs, key=lambda two: [LOSSES.index(loss) for loss in two]):
        said = {
            name: (better if beyond else "undecided")
            for name, found in orders.items()
            for better, worse, beyond in found
            if {better, worse} == set(pair)
        }
        if len(said) > 1:
            kinds = set(said.values())
            told = ", ".join(f"{winner} in {name}" for name, winner in said.items())
            told = f"{next(iter(kinds))} in every architecture" if len(kinds) == 1 else told
            said = "no lead is beyond the spread in any architecture" if kinds == {"undecided"} else f"ahead is {told}"
            lines.append(f"- {pair[0]} against {pair[1]}: {said}.")
    recalls = frame["shortlist_recall"].dropna()
    if len(recalls):
        lines.append(
            f"- Recall of the bank's shortlists against exact scoring: {recalls.min():.3f} to {recalls.max():.3f}."
        )
    return "\n".join(lines)


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
    hardware = ", ".join(sorted(set(frame["hardware"])))
    text = f"{verdicts(frame)}\n\n{table(frame)}\n\nOne thread of {hardware}; other work ran beside it."
    write_text(HERE / "table.md", f"# Losses by architecture\n\n{text}\n")
    renew(HERE / "README.md", f"{text}\n")


if __name__ == "__main__":
    main()
