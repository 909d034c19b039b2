"""Draw table.md, the figure and the README's generated parts from results.csv, joint.csv, baseline.json, expected.csv.

python experiments/flickr8k/render.py [FOLDER]
"""

import json
import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.recipes import label_rank
from vsehub.report.results import aggregate, results_table
from vsehub.report.tables import ReportTable, spread_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import judged, judged_table, read_expected, renew, study_folder, verdict  # noqa: E402 (found above)
from plots import dots, save  # noqa: E402

SEEN = (
    "The 1,000 images are the test half and the val half together. The val half has chosen each model's epoch and the "
    "baseline's settings, so that half of these images were not unseen: the values favour both, and are comparable "
    "with each other, not with values on unseen images."
)


def joint_table(folder: Path, baseline: dict) -> str:
    """rsum on both halves, 1,000 images, beside the linear baseline's, as markdown; `SEEN` stands above it."""
    both = next(values for values in baseline.values() if values["images"] == 1000)
    rows = [
        [row["label"], str(row["seeds"]), spread_text(row["rsum"], row["rsum_sd"], 1)]
        for _, row in pd.read_csv(folder / "joint.csv").iterrows()
    ]
    rows.append(["linear baseline, tuned on val (`baseline.py`)", "", f"{both['rsum']:.1f}"])
    return f"{SEEN}\n\n{ReportTable(['', 'seeds', 'rsum, 1,000 images'], rows, words=2).markdown()}"


def baseline_table(baseline: dict) -> str:
    """The linear baseline's rsum on each set, as markdown."""
    rows = [[name, str(values["images"]), f"{values['rsum']:.1f}"] for name, values in baseline.items()]
    return ReportTable(["linear baseline on", "images", "rsum"], rows).markdown()


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    frame["variant"] = ""
    frame = frame.sort_values("label", key=lambda names: names.map(label_rank), kind="stable")
    claims = judged(frame, read_expected(folder), "label")
    baseline = json.loads((folder / "baseline.json").read_text())["sets"]
    table = results_table(aggregate(frame)).markdown()
    text = "\n\n".join(
        [judged_table(claims).markdown(), table, baseline_table(baseline), joint_table(folder, baseline)]
    )
    write_text(folder / "table.md", f"# Flickr8k, extracted features, GRU 1024, five epochs\n\n{text}\n")
    caption = "rsum on the test split by loss after five epochs: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "label", "criterion", "rsum", caption, "rsum, test, 500 images"))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
