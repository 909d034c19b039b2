"""The strongest recipe for few pairs: ensembles of unlike models, and one model that learns from them.

    python -m experiments strong train FOLDER --cases cca hal
    python -m experiments strong train FOLDER --cases 'student*'          from those of the first line
    python -m experiments strong evaluate
    python -m experiments strong ensembles
    python -m experiments strong collect
    python -m experiments strong render

FOLDER holds features in the layout of VSE++. A student's teachers are CCA and HAL of seeds 0 and 1.
"""

import json
from pathlib import Path
from typing import Any

import pandas as pd

from experiments.evidence import over_seeds, renew
from experiments.running import run_all, status
from experiments.study import DRY_RUN, FEATURES, OUT, TO, Given, Study, Trainings, finish, verb
from vsehub.io.files import write_text
from vsehub.report.tables import ReportTable

SHORT = ("embedding_dim=512", "trainer.max_epochs=13")
EVALUATIONS = ((), *((f"criterion={criterion}", "reference=train", "tune=true") for criterion in ("is", "sinkhorn")))
SHOWN = {"val_rsum": "val", "test_nns": "test, plain", "test_is": "test, is", "test_sinkhorn": "test, sinkhorn"}
BEST = "{out}/runs/%s/checkpoints/best.safetensors"
TEACHERS = "teacher=[" + ",".join(BEST % member for member in ("hal-0", "hal-1", "cca-0")) + "]"
# The search was for HAL. A teacher's weight is relative to the loss: larger for InfoNCE and kNN-margin.
TUNED = ("experiment=strong", TEACHERS)
HAL = ("loss=hal", "distillation.weight=11.8")
KNN_MARGIN = ("loss=knn_margin", "distillation.weight=3000")
RATES = (0.0002, 0.0005, 0.001)
TRANSFORMER = ("text_encoder=text_transformer", "text_encoder.pooling=gpo")
LEARNER = (*TUNED, *TRANSFORMER, "embedding_dim=512", "~text_encoder.word_dropout")
STUDENTS = "teacher=[" + ",".join(BEST % f"student+tuned+infonce+1024-dimensions-{seed}" for seed in range(5)) + "]"
CASES = {
    "cca": ("experiment=cca",),
    "hal": SHORT,
    "student": (*SHORT, TEACHERS, "distillation.weight=5"),
    "student, infonce": (*SHORT, TEACHERS, "distillation.weight=5", "loss=infonce"),
    "student, knn_margin": (*SHORT, TEACHERS, "distillation.weight=5", "loss=knn_margin"),
    "student, weight 20": (*SHORT, TEACHERS, "distillation.weight=20"),
    "student, infonce, weight 30": (*SHORT, TEACHERS, "distillation.weight=30", "loss=infonce"),
    "student, knn_margin, weight 300": (*SHORT, TEACHERS, "distillation.weight=300", "loss=knn_margin"),
    "student, 1024 dimensions": (TEACHERS, "distillation.weight=5"),
    "student, tuned": (*TUNED, *HAL, *SHORT),
    "student, tuned, weight 60": (*TUNED, "loss=hal", "distillation.weight=60", *SHORT),
    "student, tuned, infonce": (*TUNED, *SHORT),
    "student, tuned, infonce, weight 700": (*TUNED, "distillation.weight=700", *SHORT),
    "student, tuned, knn_margin": (*TUNED, *KNN_MARGIN, *SHORT),
    "student, tuned, infonce, 20 epochs": (*TUNED, "embedding_dim=512"),
    "student, tuned, 1024 dimensions": (*TUNED, *HAL),
    "student, tuned, infonce, 1024 dimensions": TUNED,
    "student, tuned, knn_margin, 1024 dimensions": (*TUNED, *KNN_MARGIN),
    "student, tuned, infonce, 2048 dimensions": (*TUNED, "embedding_dim=2048"),
    "student of students, 1024 dimensions": ("experiment=strong", STUDENTS),
    "student of students, hal, 1024 dimensions": ("experiment=strong", STUDENTS, *HAL),
    **{f"hal, transformer, lr {lr}": (*SHORT, *TRANSFORMER, f"optimizer.lr={lr}") for lr in RATES},
    **{f"student, tuned, infonce, transformer, lr {lr}": (*LEARNER, f"optimizer.lr={lr}") for lr in RATES},
}
FIVE = tuple(f"hal-{seed}" for seed in range(5))
LOSSES = ("", "+infonce", "+knn_margin")
WIDE = tuple(f"student+tuned+1024-dimensions-{seed}" for seed in range(2))
WIDEST = tuple(f"student+tuned+infonce+1024-dimensions-{seed}" for seed in range(5))
MEMBERS = {
    "two of HAL": ("hal-0", "hal-1"),
    "two of HAL, and CCA": ("hal-0", "hal-1", "cca-0"),
    "two students, and CCA": ("student-0", "student-1", "cca-0"),
    "students of three losses, and CCA": (
        *("student-0", "student-1", "student+infonce+weight-30-0", "student+knn_margin+weight-300-0", "cca-0"),
    ),
    "two tuned students, and CCA": ("student+tuned-0", "student+tuned-1", "cca-0"),
    "tuned students of three losses, and CCA": (*(f"student+tuned{loss}-0" for loss in LOSSES), "cca-0"),
    "two tuned students of 1024 dimensions, and CCA": (*WIDE, "cca-0"),
    "tuned students of 1024 dimensions and two losses, and CCA": (
        *WIDE,
        WIDEST[0],
        "cca-0",
    ),
    "two of InfoNCE and 1024 dimensions": WIDEST[:2],
    "five of InfoNCE and 1024 dimensions": WIDEST,
    "five of InfoNCE and 1024 dimensions, and CCA": (*WIDEST, "cca-0"),
    "three of HAL": FIVE[:3],
    "three of HAL, and CCA": (*FIVE[:3], "cca-0"),
    "five of HAL": FIVE,
    "five of HAL, and CCA": (*FIVE, "cca-0"),
}
ONCE = {name: (0,) for name in ("cca", *(case for case in CASES if case.startswith(("student, ", "hal, "))))}
OFTEN = {
    "student, infonce, weight 30": (0, 1),
    "student, tuned": (0, 1, 2),
    "student, tuned, infonce": (0, 1, 2),
    "student, tuned, knn_margin": (0, 1),
    "student, tuned, infonce, 20 epochs": (0, 1, 2),
    "student, tuned, 1024 dimensions": range(5),
    "student, tuned, infonce, 1024 dimensions": range(5),
    "student, tuned, knn_margin, 1024 dimensions": range(5),
    "student, tuned, infonce, 2048 dimensions": (0, 1, 2),
    "student, tuned, infonce, transformer, lr 0.001": (0, 1, 2),
    "student of students, 1024 dimensions": (0, 1, 2),
    "student of students, hal, 1024 dimensions": (0, 1, 2),
}
COLUMNS = {"nns": "test, plain", "is": "test, is", "sinkhorn": "test, sinkhorn"}


@verb(OUT, DRY_RUN, TO)
def ensembles(options: Given) -> None:
    """Measure the ensembles, their weights chosen on validation; write ensembles.csv."""
    commands, folders = [], {}
    for name, members in MEMBERS.items():
        folders[name] = options.out / "ensembles" / "-".join(members)
        ready = all(status(options.out / "runs" / member) == "finished" for member in members)
        paths = [str(options.out / "runs" / member / "checkpoints" / "best.safetensors") for member in members]
        words = [f"checkpoint=[{','.join(paths)}]", "member_weights=val", f"out={folders[name]}"]
        if ready and not (folders[name].is_dir() and len(list(folders[name].glob("*.json"))) == len(EVALUATIONS)):
            commands += [["evaluate", *words, *settings] for settings in EVALUATIONS]
    finish(run_all(commands, options.dry_run), "evaluation")
    if options.dry_run:
        return
    rows = []
    for name, folder in folders.items():
        measured = {
            record["criterion"]: record
            for record in map(json.loads, (path.read_text() for path in folder.glob("*.json")))
        }
        if measured:
            rows.append({"ensemble": name} | {key: measured[key]["metrics"]["rsum"] for key in COLUMNS})
    frame = pd.DataFrame(rows)
    write_text(options.folder / "ensembles.csv", frame.to_csv(index=False, float_format="%.6g", lineterminator="\n"))


def tried(frame: pd.DataFrame) -> ReportTable:
    """The best trials of each round; settings by the last word of their names."""
    best = frame.groupby("epochs").head(2)
    settings = best["settings"].str.replace(r"\w+\.(\w+=)", r"\1", regex=True)
    rows = [[str(row["epochs"]), f"{row['val_rsum']:.1f}", settings[at]] for at, row in best.iterrows()]
    return ReportTable(["epochs", "val", "settings"], rows, words=3)


def row(run: Path) -> dict[str, Any] | None:
    """A finished run's best epoch by validation rsum, its rsum on test where measured, and its minutes."""
    if status(run) != "finished":
        return None
    record = json.loads((run / "run.json").read_text())
    best = record["best"]
    line = {"seed": record["seed"], "best_epoch": best["epoch"], "val_rsum": best["val/rsum"]}
    measured = [json.loads(path.read_text()) for path in sorted((run / "evaluations").glob("test-*.json"))]
    rsums = {f"test_{evaluation['criterion']}": evaluation["metrics"]["rsum"] for evaluation in measured}
    return (
        line
        | {name: rsums.get(name) for name in SHOWN if name != "val_rsum"}
        | {"minutes": round(record["wall_seconds"] / 60, 1)}
    )


def by_case(frame: pd.DataFrame) -> ReportTable:
    """A row for each case of `CASES` that has runs: mean ± standard deviation over the seeds."""
    rows = [
        [case, str(len(runs)), *(over_seeds(runs[column]) for column in SHOWN)]
        for case in CASES
        if len(runs := frame[frame["case"] == case])
    ]
    return ReportTable(["model", "seeds", *SHOWN.values()], rows)


def render(folder: Path) -> None:
    """Write the README's tables from trials.csv, models.csv and ensembles.csv; earlier.csv is of another training."""
    renew(folder / "README.md", by_case(pd.read_csv(folder / "models.csv")).markdown(), "models")
    rows = [
        [row["ensemble"], *(f"{row[key]:.1f}" for key in COLUMNS)]
        for _, row in pd.read_csv(folder / "ensembles.csv").iterrows()
    ]
    renew(folder / "README.md", tried(pd.read_csv(folder / "trials.csv")).markdown(), "trials")
    renew(folder / "README.md", ReportTable(["ensemble", *COLUMNS.values()], rows).markdown(), "ensembles")


STUDY = Study(
    __file__,
    trainings={"models": Trainings(CASES, FEATURES, (0, 1), {"hal": range(5), **ONCE, **OFTEN}, EVALUATIONS, row)},
    render=render,
    verbs={"ensembles": ensembles},
)
