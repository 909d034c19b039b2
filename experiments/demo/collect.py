"""Collect what the demo's learning rates were chosen from: rates.csv, and the table of the README beside it.

python experiments/demo/collect.py runs/sweeps/demo
"""

import argparse
import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.checks import require
from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)

LOSSES = ["sum", "max", "sum_to_max", "hal", "hal+mb"]


def tried(sweep: Path) -> pd.DataFrame:
    """A row for each run of the sweep. InputError unless every loss was given the same rates, seeds and epochs."""
    records = [json.loads(path.read_text()) for path in sorted(sweep.glob("*/run.json"))]
    rows = [
        {
            "loss": record["label"],
            "seed": record["seed"],
            "rate": record["config"]["optimizer"]["lr"],
            "epochs": record["epochs"],
            "best_epoch": record["best"]["epoch"],
            "val_rsum": record["best"]["val/rsum"],
        }
        for record in records
        if record["status"] == "finished"
    ]
    found = {row["loss"] for row in rows}
    require(found == set(LOSSES), f"{sweep} has finished runs of {sorted(found)}; expected those of {LOSSES}")
    frame = pd.DataFrame(rows).sort_values(
        ["loss", "rate", "seed"],
        key=lambda column: column.map(LOSSES.index) if column.name == "loss" else column,
        ignore_index=True,
    )
    budgets = {tuple(map(tuple, rows[["seed", "rate", "epochs"]].values)) for _, rows in frame.groupby("loss")}
    require(len(budgets) == 1, f"the losses in {sweep} have different rates, seeds or epochs; finish the sweep")
    return frame


def chosen(frame: pd.DataFrame) -> dict[str, float]:
    """Each loss's rate with the largest validation rsum, the mean over the seeds; the smaller one of equal rates."""
    means = frame.groupby(["loss", "rate"], sort=False)["val_rsum"].mean()
    return {loss: means[loss].idxmax() for loss in frame["loss"].unique()}


def table(frame: pd.DataFrame) -> str:
    """Markdown: a row for each rate, a column for each loss, the chosen cells in bold."""
    best = chosen(frame)
    means = frame.groupby(["rate", "loss"])["val_rsum"].mean()
    lines = [f"| learning rate | {' | '.join(best)} |", f"|---|{'---:|' * len(best)}"]
    for rate in sorted(frame["rate"].unique()):
        cells = [f"{means[rate, loss]:.1f}" for loss in best]
        marked = [f"**{cell}**" if best[loss] == rate else cell for cell, loss in zip(cells, best, strict=True)]
        lines.append(f"| {rate:g} | {' | '.join(marked)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sweep", type=Path, help="the sweep's folder, e.g. runs/sweeps/demo")
    frame = tried(parser.parse_args().sweep)
    write_text(HERE / "rates.csv", frame.to_csv(index=False, float_format="%.6g"))
    renew(HERE / "README.md", table(frame))


if __name__ == "__main__":
    main()
