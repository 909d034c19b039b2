"""Put the study's evidence together: tables, results.csv and figures from its runs, and the README's generated part.

    python experiments/flickr8k/collect.py RUNS... --joint FOLDER

RUNS: run folders or folders of them. FOLDER: evaluations on both halves, FOLDER/LABEL-SEED/*.json (see both_halves.py).
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from vsehub.report.build import build_report

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)

FIGURES = ("rsum-over-epochs.png", "occurrences.png", "recalls.png")


def joint_table(folder: Path) -> str:
    """rsum on both halves, 1,000 images, beside the linear baseline's, as markdown."""
    found = defaultdict(dict)
    for file in sorted(folder.glob("*/test-single-nns.json")):
        label, _, seed = file.parent.name.rpartition("-")
        found[label][seed] = json.loads(file.read_text())["metrics"]["rsum"]
    baseline = json.loads((HERE / "baseline.json").read_text())["sets"]
    both = next(figures for figures in baseline.values() if figures["images"] == 1000)
    rows = [
        f"| {label} | {', '.join(sums)} | {statistics.mean(sums.values()):.1f}"
        + (f" ± {statistics.stdev(sums.values()):.1f} |" if len(sums) > 1 else " |")
        for label, sums in found.items()
    ]
    rows.append(f"| linear baseline, tuned on val (`baseline.py`) | | {both['rsum']:.1f} |")
    return "\n".join(["| | seeds | rsum, 1,000 images |", "| --- | --- | ---: |", *rows])


def baseline_table() -> str:
    """The linear baseline's rsum on each set, as markdown."""
    sets = json.loads((HERE / "baseline.json").read_text())["sets"]
    rows = [f"| {name} | {figures['images']} | {figures['rsum']:.1f} |" for name, figures in sets.items()]
    return "\n".join(["| linear baseline on | images | rsum |", "| --- | ---: | ---: |", *rows])


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--joint", type=Path, required=True)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        files = build_report(arguments.runs, Path(folder), "Flickr8k, extracted features, GRU 1024")
        for name in ("table.md", "results.csv"):
            shutil.copy(files[name], HERE / name)
        (HERE / "figures").mkdir(exist_ok=True)
        for name in FIGURES:
            shutil.copy(Path(folder) / "figures" / name, HERE / "figures" / name)
    table = (HERE / "table.md").read_text().partition("\n")[2].strip()
    parts = [table, baseline_table(), joint_table(arguments.joint)]
    renew(HERE / "README.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
