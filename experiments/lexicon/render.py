"""Draw table.md, the figure and the README's generated parts from results.csv and expected.csv.

python experiments/lexicon/render.py [FOLDER]
"""

import sys
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.recipes import label_rank
from vsehub.report.results import aggregate, results_table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import judged, judged_table, read_expected, renew, study_folder, verdict  # noqa: E402 (found above)
from plots import dots, save  # noqa: E402


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv", keep_default_na=False, na_values=[""])
    frame["variant"] = ""
    frame = frame.sort_values("label", key=lambda names: names.map(label_rank), kind="stable")
    frame = frame.sort_values("criterion", ascending=False, kind="stable")
    frame["case"] = frame["criterion"] + " " + frame["label"]
    claims = judged(frame, read_expected(folder), "case")
    text = f"{judged_table(claims).markdown()}\n\n{results_table(aggregate(frame)).markdown()}\n"
    write_text(folder / "table.md", f"# Losses on a made-up lexicon\n\n{text}")
    caption = "rsum of the test words by loss, under each criterion: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "label", "criterion", "rsum", caption, "rsum, test words"))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
