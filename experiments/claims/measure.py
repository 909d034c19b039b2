"""Measure the runs that compare the losses under corrections and under relaxed matching with many λ.

    python experiments/claims/measure.py RUNS... --out MEASURED [--root DATA]

RUNS: run folders or folders of them. Transductive, at the criteria's default settings; matching with each λ on val too,
where a λ is chosen. Each split is encoded once a run. A measurement is one JSON file: what is there is not measured
again, unless the run was trained anew since.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collect import trainings
from curves import compared
from tqdm import tqdm

from vsehub.cli.measure import Measurement, measure
from vsehub.cli.nodes import components
from vsehub.io.files import write_json
from vsehub.report.runs import Run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from checkpoints import chosen, restored  # noqa: E402 (beside this folder, found by the line above)

CRITERIA = ("is", "csls")
FACTS = ("label", "seed", "started", "config", "data", "precision", "noise")  # what tells the run and its recipe
LAMBDAS = (1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements, LABEL-SEED-RECIPE/*.json")
    parser.add_argument("--root", help="where the data lies now, if elsewhere than at training")
    arguments = parser.parse_args()
    runs, frame = trainings(arguments.runs)
    for index in compared(frame):
        row = frame.loc[index]
        out = arguments.out / f"{row['loss']}-{row['seed']}-{row['recipe']}"
        measure_run(Path(row["path"]), runs[row["path"]], out, arguments.root)


def measure_run(folder: Path, run: Run, out: Path, root: str | None) -> None:
    """Write every measurement of one run that `out` lacks or has of an earlier training."""
    facts = {name: run.record[name] for name in FACTS if name in run.record}
    lacking = [cell for cell in cells() if not done(out / f"{cell[0]}-{cell[1]}.json", facts)]
    if not lacking:
        return
    protocol = components().build("protocol", run.record["config"]["protocol"])
    encodings = restored(folder, root)
    for name, split, criterion_name, criterion in tqdm(lacking, out.name):
        record = measure(encodings, Measurement(split, criterion, criterion_name, protocol))
        write_json(out / f"{name}-{split}.json", record | {"run": facts})


def cells() -> Iterator[tuple[str, str, str, Any]]:
    """What one run is measured under: file name, split, criterion's name and criterion."""
    for name in CRITERIA:
        yield name, "test", name, chosen("criterion", name)
    for split in ("val", "test"):
        for relaxation in LAMBDAS:
            yield f"rgm-{relaxation:g}", split, "rgm", chosen("criterion", "rgm", relaxation=relaxation)


def done(path: Path, facts: dict) -> bool:
    """Whether a measurement is there, of this training."""
    return path.is_file() and json.loads(path.read_text())["run"] == facts


if __name__ == "__main__":
    main()
