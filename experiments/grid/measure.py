"""Trained runs under every criterion of the grid: transductive and inductive, at default settings and fitted.

Each split is encoded once a run. A measurement is one JSON file with each image's part of rsum, written whole or not at
all: what is there is not measured again, unless the run was trained anew since.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tqdm import tqdm

from experiments.checkpoints import chosen, of_record, restored
from experiments.grid.tables import CRITERIA
from vsehub.evaluation.measurement import Measurement, measure
from vsehub.io.files import write_json
from vsehub.report.runs import Run, read_run

FACTS = (
    "label",
    "seed",
    "dataset",
    "architecture",
    "started",
    "wall_seconds",
    "epochs",
    "best",
    "hardware",
    "precision",
    "data",
    "noise",
    "config",
)


def measure_runs(
    folders: Sequence[Path], out: Path, criteria: Sequence[str] = CRITERIA, root: str | None = None
) -> None:
    """Write every measurement of the finished runs in `folders` that `out` lacks."""
    for folder in folders:
        run = read_run(folder, folder.name)
        if run.finished:
            measure_run(folder, run, out / f"{run.record['label']}-{run.record['seed']}", criteria, root)
        else:
            print(f"{folder.name} is {run.record['status']}, not finished: left out")


def measure_run(folder: Path, run: Run, out: Path, criteria: Sequence[str], root: str | None) -> None:
    """Write every measurement of one run that `out` lacks or has of an earlier training."""
    facts = {name: run.record[name] for name in FACTS if name in run.record}
    protocol = of_record("protocol", run.record["config"]["protocol"])
    lacking = [cell for cell in cells(criteria) if not done(out / file_name(*cell), facts)]
    if not lacking:
        return
    model = restored(folder, root)
    for name, reference, fitted in tqdm(lacking, folder.name):
        criterion = chosen("criterion", name)
        record = measure(model, Measurement("test", criterion, name, protocol, reference, fitted))
        record |= {"inductive_form": criterion.inductive, "run": facts}
        write_json(out / file_name(name, reference, fitted), record)


def cells(criteria: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """The measurements of one run: criterion, reference, whether its settings are tuned on val.

    What matches has no inductive form; nns refers to nothing; nns and gm have nothing to fit.
    """
    for name in criteria:
        criterion = chosen("criterion", name)
        for reference in ["queries"] + (["train"] if criterion.inductive and criterion.needs_reference else []):
            for fitted in [False] + (
                [True] if criterion.correction.GRID or getattr(criterion.matching, "GRID", None) else []
            ):
                yield name, reference, fitted


def file_name(criterion: str, reference: str, fitted: bool) -> str:
    """The measurement's file."""
    return f"{criterion}-{reference}-{'tuned' if fitted else 'default'}.json"


def done(path: Path, facts: dict) -> bool:
    """True if the measurement exists and is of this training."""
    return path.is_file() and json.loads(path.read_text())["run"]["started"] == facts["started"]
