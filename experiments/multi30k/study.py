"""A second data set: adapters on frozen vectors of English captions and their Czech translations, each loss.

    python -m experiments multi30k train DATA --part pilot      four settings a loss, one seed, judged on validation
    python -m experiments multi30k collect --part pilot
    python -m experiments multi30k train DATA                   each loss at its chosen settings, five seeds
    python -m experiments multi30k evaluate                     CSLS and Sinkhorn, inductive, with their defaults
    python -m experiments multi30k collect
    python -m experiments multi30k render

DATA: a folder with en.npy, cs.npy (a unit vector a line, the same line of both belongs together) and the tables
train.csv, val.csv and test.csv (columns query, item) of the lines of each split.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.compare import loss_overrides
from experiments.evidence import over_seeds, renew, tell
from experiments.running import results
from experiments.study import Study, Trainings
from vsehub.report.tables import ReportTable

HERE = Path(__file__).parent

COMMON = (
    *("experiment=adapter", "data.images={data}/en.npy", "data.texts={data}/cs.npy"),
    *(f"data.splits.{split}={{data}}/{split}.csv" for split in ("train", "val", "test")),
    *("data.name=multi30k", "optimizer.lr=0.001"),
)
MARGINS = {f"margin {margin}": [f"loss.margin={margin}"] for margin in (0.05, 0.1, 0.2, 0.3)}
WEIGHTS = {f"gamma {g}, epsilon {e}": [f"loss.gamma={g}", f"loss.epsilon={e}"] for g in (30, 60) for e in (0.3, 0.7)}
TEMPERATURES = {f"temperature {value}": [f"loss.temperature={value}"] for value in (0.02, 0.03, 0.05, 0.07)}
CHOICES = {
    "sum": MARGINS,
    "max": MARGINS,
    "knn_margin": MARGINS,
    "infonce": TEMPERATURES,
    "hal": WEIGHTS,
    "hal+mb": WEIGHTS,
}
CRITERIA = ("csls", "sinkhorn")


def pilot() -> dict[str, list[str]]:
    """The cases of the pilot: each loss at four settings."""
    return {
        f"{loss}, {name}": [*loss_overrides(loss), *settings]
        for loss, choices in CHOICES.items()
        for name, settings in choices.items()
    }


def cases() -> dict[str, list[str]]:
    """Each loss at the settings with the largest rsum on validation in the pilot; of equal ones the first."""
    frame = pd.read_csv(HERE / "pilot.csv")
    best = frame.loc[frame.groupby(frame["case"].str.partition(",")[0], sort=False)["val_rsum"].idxmax(), "case"]
    return {case.partition(",")[0]: pilot()[case] for case in best}


def row(folder: Path) -> dict[str, Any] | None:
    """A finished run's results, with R@1 both ways and the rsum that each measured criterion adds."""
    reached = results(folder)
    if reached is None:
        return None
    metrics = json.loads((folder / "run.json").read_text())["metrics"]
    reached |= {side: metrics[f"test/{side}/r1"] for side in ("i2t", "t2i")}
    measured = (json.loads(path.read_text()) for path in (folder / "evaluations").glob("test-*.json"))
    gains = {record["criterion"]: record["metrics"]["rsum"] - reached["rsum"] for record in measured}
    return reached | {criterion: gains[criterion] for criterion in CRITERIA if criterion in gains}


def render(folder: Path) -> None:
    """Write the README's generated parts from the tables."""
    frame = pd.read_csv(folder / "results.csv")
    tell(folder, frame, "case")
    rows = [
        [str(case), *(over_seeds(runs[column]) for column in ("i2t", "t2i")), *(over_seeds(runs[c]) for c in CRITERIA)]
        for case, runs in frame.groupby("case", sort=False)
    ]
    head = ["loss", "R@1 to Czech", "R@1 to English", "CSLS adds", "Sinkhorn adds"]
    renew(folder / "README.md", ReportTable(head, rows, text_left=1).markdown(), "gains")


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(
            cases,
            COMMON,
            range(5),
            evaluations=[[f"criterion={name}", "reference=train"] for name in CRITERIA],
            row=row,
        ),
        "pilot": Trainings(pilot, (*COMMON, "trainer.max_epochs=5"), [0]),
    },
    render=render,
)
