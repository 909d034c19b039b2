"""Put the study's figures together from its runs: results.csv and joint.csv; `render.py` draws them.

    python experiments/flickr8k/collect.py RUNS... --joint FOLDER

RUNS: run folders or folders of them. FOLDER: evaluations on both halves, FOLDER/LABEL-SEED/*.json (see both_halves.py).
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.build import build_report
from vsehub.report.recipes import label_rank

HERE = Path(__file__).parent


def joint(folder: Path) -> pd.DataFrame:
    """rsum on both halves, 1,000 images: mean and sample deviation over the seeds of each loss."""
    found = [
        (*file.parent.name.rsplit("-", 1), json.loads(file.read_text())["metrics"]["rsum"])
        for file in sorted(folder.glob("*/test-single-nns.json"))
    ]
    frame = pd.DataFrame(found, columns=["label", "seed", "rsum"])
    means = frame.groupby("label").agg(seeds=("seed", ", ".join), mean=("rsum", "mean"), rsum_sd=("rsum", "std"))
    means = means.rename(columns={"mean": "rsum"}).reset_index().round(1)
    return means.sort_values("label", key=lambda names: names.map(label_rank))


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--joint", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        shutil.copy(build_report(arguments.runs, Path(folder))["results.csv"], HERE / "results.csv")
    write_text(HERE / "joint.csv", joint(arguments.joint).to_csv(index=False, lineterminator="\n"))


if __name__ == "__main__":
    main()
