"""The grid under tuned recipes: the losses of `losses`, each with its own recipe, under every criterion of the grid.

python -m experiments tuned train DATA
python -m experiments tuned measure RUNS... --out MEASURED
python -m experiments tuned spread RUNS...                  spread.csv: how far apart the cosines of each run lie
python -m experiments tuned collect MEASURED
python -m experiments tuned render
"""

from dataclasses import replace

import pandas as pd
from tqdm import tqdm

from experiments.checkpoints import restored
from experiments.grid import page
from experiments.grid.study import measure, write_tables
from experiments.losses import study as losses
from experiments.study import DATA_ROOT, RUNS, TO, Given, Study, verb
from vsehub.io.files import write_text
from vsehub.report.runs import find_runs, read_run

TUNED = losses.STUDY.trainings["results"]


@verb(RUNS, DATA_ROOT, TO)
def spread(given: Given) -> None:
    """Write spread.csv: of each run the mean cosine of test captions and images, and a caption's mean deviation."""
    rows = []
    for folder in tqdm(find_runs(given.runs), "spread"):
        record, model = read_run(folder, folder.name).record, restored(folder, given.root)
        test = model.encode("test")
        scores = model.similarity(test.images, test.texts)
        found = {"mean": scores.mean().item(), "deviation": scores.std(dim=0).mean().item()}
        rows.append({"loss": record["label"], "seed": record["seed"], **found})
    frame = pd.DataFrame(rows).sort_values(["loss", "seed"])
    write_text(given.folder / "spread.csv", frame.to_csv(index=False, float_format="%.3g"))


STUDY = Study(
    __file__,
    trainings={"results": replace(TUNED, cases=lambda: TUNED.chosen(losses.LOSSES), seeds=range(3), own_seeds={})},
    render=page.render,
    verbs={"measure": measure, "spread": spread, "collect": write_tables},
)
