"""Draw table.md, the figure and the README's generated parts from results.csv, settings.csv and expected.csv.

python experiments/losses/render.py [FOLDER]
"""

import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew, study_folder  # noqa: E402 (beside this folder, found by the line above)
from plots import dots, save  # noqa: E402
from seeds import tell  # noqa: E402

from vsehub.report.tables import ReportTable  # noqa: E402


def main() -> None:
    """Render the study."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    means = frame.groupby("loss")["rsum"].mean().sort_values(ascending=False)
    frame["place"] = frame["loss"].map({loss: place for place, loss in enumerate(means.index)})
    frame = frame.sort_values(["place", "seed"]).assign(panel="Losses, each with the recipe that a search chose for it")
    tell(folder, frame, "loss")
    caption = "Losses under their own recipes: mean and deviation over seeds, each run."
    save(folder, dots(frame, "rsum", "loss", "panel", "rsum", caption, "rsum on test, plain search"))
    renew(folder / "README.md", settings(pd.read_csv(folder / "settings.csv")).markdown(), "settings")


def settings(frame: pd.DataFrame) -> ReportTable:
    """The chosen settings."""
    rows = [[row["loss"], f"{row['val_rsum']:.1f}", row["settings"]] for _, row in frame.iterrows()]
    return ReportTable(["loss", "val rsum", "settings"], rows, "After 7 epochs at 256 dimensions, one seed.", words=3)


if __name__ == "__main__":
    main()
