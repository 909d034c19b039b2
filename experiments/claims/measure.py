"""The runs that compare the losses, measured under corrections and under relaxed matching with many λ."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tqdm import tqdm

from experiments.checkpoints import chosen, of_record, restored
from vsehub.evaluation.measurement import Measurement, measure
from vsehub.io.files import write_json
from vsehub.report.runs import Run

CRITERIA = ("is", "csls")
FACTS = ("label", "seed", "started", "config", "data", "precision", "noise")  # what tells the run and its recipe
LAMBDAS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)


def measure_run(folder: Path, run: Run, out: Path, root: str | None) -> None:
    """Write every measurement of one run that `out` lacks or has of an earlier training."""
    facts = {name: run.record[name] for name in FACTS if name in run.record}
    lacking = [cell for cell in cells() if not done(out / f"{cell[0]}-{cell[1]}.json", facts)]
    if not lacking:
        return
    protocol = of_record("protocol", run.record["config"]["protocol"])
    model = restored(folder, root)
    for name, split, criterion_name, criterion in tqdm(lacking, out.name):
        record = measure(model, Measurement(split, criterion, criterion_name, protocol))
        write_json(out / f"{name}-{split}.json", record | {"run": facts})


def cells() -> Iterator[tuple[str, str, str, Any]]:
    """The measurements of one run: file name, split, criterion's name and criterion."""
    for name in CRITERIA:
        yield name, "test", name, chosen("criterion", name)
    for split in ("val", "test"):
        for relaxation in LAMBDAS:
            yield f"rgm-{relaxation:g}", split, "rgm", chosen("criterion", "rgm", relaxation=relaxation)


def done(path: Path, facts: dict) -> bool:
    """True if the measurement exists and is of this training."""
    return path.is_file() and json.loads(path.read_text())["run"] == facts
