"""Losses x criteria x {transductive, inductive} x seeds under one recipe, tested, on one page.

    python -m experiments grid run scenes
    python -m experiments grid run DATA --seeds 0,1,2           all that follows, into OUT/grid
    python -m experiments grid train DATA                       --part pilot: the trainings that choose the settings
    python -m experiments grid choose                           pilot.csv and settings.csv from them
    python -m experiments grid measure RUNS... --out MEASURED
    python -m experiments grid collect MEASURED
    python -m experiments grid render

DATA: a folder of extracted features (*_ims.npy, *_caps.txt), whose losses train with the settings that the pilot chose
(settings.csv), or scenes, painted on the spot, with fewer epochs and the demo's learning rates: a trial of the
machinery that needs no data. What is finished is not done again; a killed command goes on where it was.
"""

import shutil
from pathlib import Path

from experiments.compare import loss_overrides
from experiments.grid import page
from experiments.grid.collect import collect
from experiments.grid.measure import measure_runs
from experiments.grid.pilot import OWN, PILOT, best_of, chosen, overrides, tried, tries
from experiments.grid.tables import CRITERIA
from experiments.study import (
    CASES,
    DATA,
    DATA_ROOT,
    DRY_RUN,
    FEATURES,
    MEASURED,
    MORE,
    NAME,
    OUT,
    RUNS,
    SCENES,
    SEEDS,
    TO,
    Given,
    Study,
    Trainings,
    option,
    verb,
)
from vsehub.io.files import write_text
from vsehub.report.runs import find_runs

HERE = Path(__file__).parent

RECIPE = ("experiment=papers", "embedding_dim=512", "trainer.max_epochs=13", "scheduler.step_size=8")
ON_SCENES = {label: loss_overrides("rescaled_sum" if label == "rescaled" else label) for label in OWN}


@verb(
    DATA,
    OUT,
    CASES,
    SEEDS,
    NAME,
    MORE,
    option("--no-training", action="store_true", help="measure the finished runs of OUT alone"),
    DRY_RUN,
)
def run(options: Given) -> None:
    """Train what is missing, measure every criterion, then write tables, figures and page to OUT/grid."""
    if not options.no_training:
        STUDY.train(options)
    if options.dry_run:
        return
    runs = STUDY.trainings["results"].on(options.data).runs(options.out, options.cases, options.seeds)
    trained = [folder for folder in runs if (folder / "run.json").is_file()]
    for folder in runs.keys() - trained:
        print(f"{folder.name} is not trained: left out")
    out = options.out / "grid"
    measure_runs(trained, options.out / "measured", root=None if options.data == SCENES else options.data)
    collect(options.out / "measured", out)
    shutil.copy(HERE / "expected.csv", out / "expected.csv")
    page.render(out, out / "index.html")
    print(f"the page: {out / 'index.html'}")


@verb(option("--out", type=Path, default=Path("runs/grid-pilot"), help="folder of the pilot's runs"), TO)
def choose(options: Given) -> None:
    """Write what the pilot tried, and of each loss the settings with the largest rsum on val."""
    frame = tried(options.out)
    write_text(options.folder / "pilot.csv", frame.to_csv(index=False, float_format="%.6g"))
    write_text(options.folder / "settings.csv", best_of(frame).to_csv(index=False, float_format="%.6g"))


@verb(RUNS, MEASURED, DATA_ROOT, option("--criteria", nargs="+", default=CRITERIA, choices=CRITERIA))
def measure(options: Given) -> None:
    """Measure finished runs under every criterion, as far as that is not done."""
    measure_runs(find_runs(options.runs), options.measured, options.criteria, options.root)


@verb(option("measured", type=Path, help="folder of LABEL-SEED/*.json"), TO)
def write_tables(options: Given) -> None:
    """Write results.csv, comparisons.csv and recipes.csv."""
    collect(options.measured, options.folder)


STUDY = Study(
    __file__,
    trainings={
        "results": Trainings(chosen, (*FEATURES, *RECIPE), scenes=Trainings(ON_SCENES, ("experiment=demo",))),
        "pilot": Trainings(
            {name: overrides(*trial) for name, trial in tries().items()}, (*FEATURES, "experiment=papers", *PILOT), (0,)
        ),
    },
    render=page.render,
    verbs={"run": run, "choose": choose, "measure": measure, "collect": write_tables},
)
