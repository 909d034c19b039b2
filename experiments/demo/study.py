"""The trainings that the demo's learning rates were chosen from.

python -m experiments demo collect runs/sweeps/demo
python -m experiments demo render
"""

import json
from pathlib import Path

import pandas as pd

from experiments.evidence import renew
from experiments.study import TO, Given, Study, option, verb
from vsehub.checks import require
from vsehub.io.files import write_text

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
    frame = pd.DataFrame(rows).sort_values(
        ["loss", "rate", "seed"],
        key=lambda column: column.map(LOSSES.index) if column.name == "loss" else column,
        ignore_index=True,
    )
    budgets = {tuple(map(tuple, rows[["seed", "rate", "epochs"]].values)) for _, rows in frame.groupby("loss")}
    require(len(budgets) == 1, f"the losses in {sweep} have different rates, seeds or epochs; finish the sweep")
    return frame


def table(frame: pd.DataFrame) -> str:
    """Markdown: a row for each rate, a column for each loss; each loss's best mean over the seeds in bold."""
    means = frame.pivot_table("val_rsum", "rate", "loss", sort=False)[LOSSES].sort_index()
    best = means.idxmax()  # the smaller one of equal rates
    lines = [f"| learning rate | {' | '.join(LOSSES)} |", f"|---|{'---:|' * len(LOSSES)}"]
    for rate, row in means.iterrows():
        cells = [f"**{mean:.1f}**" if best[loss] == rate else f"{mean:.1f}" for loss, mean in row.items()]
        lines.append(f"| {rate:g} | {' | '.join(cells)} |")
    return "\n".join(lines)


@verb(option("sweep", type=Path, help="the sweep's folder, e.g. runs/sweeps/demo"), TO)
def collect(given: Given) -> None:
    """Write rates.csv, a row for each run of the sweep."""
    write_text(given.folder / "rates.csv", tried(given.sweep).to_csv(index=False, float_format="%.6g"))


def render(folder: Path) -> None:
    """Write the README's table from rates.csv."""
    renew(folder / "README.md", table(pd.read_csv(folder / "rates.csv")))


STUDY = Study(__file__, render=render, verbs={"collect": collect})
