"""Measure trained runs plainly and under corrections: what `collect.py` holds the gains of corrections against.

    python experiments/diagnosis/measure.py RUNS... --out runs/diagnosis [--root DATA]

RUNS: run folders or folders of them; those that are not finished are left out. Each run's splits are encoded once. A
run is one JSON file, written whole or not at all; what is there is not measured again.
"""

import argparse
import sys
from pathlib import Path

import torch
from tqdm import tqdm

from vsehub.evaluation.measurement import Measurement, measure
from vsehub.evaluation.trained import TrainedModel
from vsehub.io.files import write_json
from vsehub.report.runs import find_runs, read_run

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from checkpoints import chosen, of_record, restored  # noqa: E402 (beside this folder, found by the line above)

CRITERIA = ("is", "csls", "sinkhorn", "nnn", "dn")
REFERENCES = {"transductive": "queries", "inductive": "train"}
FACTS = ("label", "seed", "dataset", "epochs", "started")


def main() -> None:
    """Read the command line and measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("runs/diagnosis"), help="default: %(default)s")
    parser.add_argument("--root", help="where the data lies now, if elsewhere than at training")
    arguments = parser.parse_args()
    for folder in tqdm(find_runs(arguments.runs)):
        run = read_run(folder, folder.name)
        path = arguments.out / f"{folder.parent.name}-{folder.name}.json"
        if run.finished and not path.is_file():
            protocol = of_record("protocol", run.record["config"]["protocol"])
            facts = {name: run.record[name] for name in FACTS}
            write_json(path, facts | measured(restored(folder, arguments.root), protocol))


def measured(model: TrainedModel, protocol) -> dict:
    """The plain metrics with the concentration of the scores, and those of each correction, tuned on val."""
    plain = measure(model, Measurement("test", chosen("criterion", "nns"), "nns", protocol))["metrics"]
    cells = {}
    for kind, reference in REFERENCES.items():
        for name in CRITERIA:
            settings = Measurement("test", chosen("criterion", name), name, protocol, reference, tuned=True)
            cells[f"{name} {kind}"] = measure(model, settings)["metrics"]
    return {"plain": plain | concentration(model), "corrected": cells}


def concentration(model: TrainedModel) -> dict[str, float]:
    """The relative variance of the distances of unit vectors, by direction: their deviation over each query's mean.

    The smaller, the more alike all items are to a query (François, Wertz and Verleysen 2007).
    """
    split = model.encode("test")
    distances = (2 - 2 * model.similarity(split.images, split.texts)).clamp(min=0).sqrt()
    return {
        f"hubness/{side}/relative_variance": torch.mean(of.std(dim=1) / of.mean(dim=1)).item()
        for side, of in (("i2t", distances), ("t2i", distances.T))
    }


if __name__ == "__main__":
    main()
