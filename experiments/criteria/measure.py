"""Measure checkpoints under every criterion: transductive and inductive, at default settings and tuned on val.

    python experiments/criteria/measure.py RUNS... --out FOLDER [--root DATA]

RUNS: run folders or folders of them. Each split is encoded once a run. What is measured already is not measured again:
a killed command goes on where it stopped. `collect.py` makes the tables and figures of it.
"""

import argparse
import sys
from pathlib import Path

from tqdm import tqdm

from vsehub.cli.measure import Measurement, measure
from vsehub.components import conf_folder
from vsehub.io.files import write_json
from vsehub.report.runs import find_runs, read_run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from checkpoints import chosen, restored  # noqa: E402 (beside this folder, found by the line above)


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the measurements, LABEL-SEED/*.json")
    parser.add_argument("--root", help="where the data lies now, if elsewhere than at training")
    parser.add_argument("--criteria", nargs="+", default=names(), help="default: all of conf/criterion")
    arguments = parser.parse_args()
    for run in find_runs(arguments.runs):
        record = read_run(run, run.name).record
        measure_run(run, arguments.out / f"{record['label']}-{record['seed']}", arguments.criteria, arguments.root)


def names() -> list[str]:
    """All criteria that have a yaml."""
    return sorted(path.stem for path in (conf_folder() / "criterion").glob("*.yaml"))


def measure_run(run: Path, out: Path, criteria: list[str], root: str | None) -> None:
    """Write every measurement of one run that `out` lacks."""
    encodings = None
    protocol = chosen("protocol", "single")
    for name in tqdm(criteria, out.name):
        criterion = chosen("criterion", name)
        references = ["queries"] + (["train"] if criterion.inductive and criterion.needs_reference else [])
        for reference in references:
            for fitted in [False] + ([True] if criterion.tunable and name != "gm" else []):  # gm is rgm with λ = 1
                path = out / f"{name}-{reference}-{'tuned' if fitted else 'default'}.json"
                if not path.exists():
                    encodings = encodings or restored(run, root)
                    write_json(
                        path, measure(encodings, Measurement("test", criterion, name, protocol, reference, fitted))
                    )


if __name__ == "__main__":
    main()
