"""Draw table.md, the figure and the README's generated parts from results.csv and expected.csv.

python experiments/bank/render.py [FOLDER]
"""

import sys
from pathlib import Path

import pandas as pd

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import study_folder  # noqa: E402 (beside this folder, found by the line above)
from seeds import draw  # noqa: E402


def main() -> None:
    """Render the study."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    parts = frame["case"].str.extract(r"gamma (?P<gamma>\d+), (?P<statistics>\w+), (?P<recipe>\w+)")
    frame = frame.join(parts).sort_values(
        ["recipe", "gamma", "statistics", "seed"], ascending=[True, True, False, True]
    )
    frame["panel"] = frame["recipe"] + ", γ " + frame["gamma"]
    draw(folder, frame, "case", "panel", "HAL with a memory bank and without: mean and deviation over seeds, each run.")


if __name__ == "__main__":
    main()
