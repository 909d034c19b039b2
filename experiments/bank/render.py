"""Draw table.md, the figure and the README's generated parts from results.csv, ablation.csv and expected.csv.

python experiments/bank/render.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure, render

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew, spread, study_folder  # noqa: E402 (beside this folder, found by the line above)
from plots import save  # noqa: E402
from seeds import tell  # noqa: E402

from vsehub.report.tables import ReportTable, spread_text  # noqa: E402

RECIPES = {"plain": "plain", "regularised": "with dropout and averaged weights"}
BASE = "gamma 30, bank, plain"
STATISTICS = {"none": "no bank", "bank": "with the bank", "batch": "the batch's statistics"}


def main() -> None:
    """Render the study."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    frame = frame.join(frame["case"].str.extract(r"gamma (?P<gamma>\d+), (?P<statistics>\w+), (?P<recipe>\w+)"))
    order = [frame["recipe"].map(list(RECIPES).index), frame["statistics"].map(list(STATISTICS).index)]
    frame = frame.assign(recipe_place=order[0], place=order[1])
    frame = frame.sort_values(["recipe_place", "gamma", "place", "seed"])
    tell(folder, frame, "case")
    renew(folder / "README.md", ablation(pd.read_csv(folder / "ablation.csv"), frame).markdown(), "ablation")
    save(folder, picture(frame))


def ablation(varied: pd.DataFrame, frame: pd.DataFrame) -> ReportTable:
    """The cases of the ablation, each against the study's own bank, seed by seed."""
    base = frame[frame["case"] == BASE].set_index("seed")["rsum"]
    rows = []
    for name, own in varied.groupby("case", sort=False):
        differences = own.set_index("seed")["rsum"] - base
        told = [spread_text(own[one].mean(), own[one].std(), 1) for one in ("val_rsum", "rsum")]
        rows.append([str(name), str(differences.count()), *told, spread(differences.mean(), differences.std())])
    head = ["case", "seeds", "val rsum", "test rsum", "difference on test"]
    return ReportTable(
        head, rows, f"Differences from {BASE!r}, seed by seed, ± one sample deviation; not tested.", words=1
    )


def picture(frame: pd.DataFrame) -> Picture:
    """Test rsum over γ, a line for each kind of statistics, a panel a recipe; single runs as faint dots."""
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.4)
        for axes, (recipe, title) in zip(figure.subplots(1, 2, sharey=True), RECIPES.items(), strict=True):
            for place, (name, label) in enumerate(STATISTICS.items()):
                own = frame[(frame["recipe"] == recipe) & (frame["statistics"] == name)]
                if own.empty:
                    continue
                look = {"color": COLOURS[place], "marker": MARKERS[place]}
                places = own["gamma"].astype(int) + 1.5 * (place - 1)
                axes.plot(places, own["rsum"], linestyle="none", alpha=0.35, markersize=4, **look)
                over = own.assign(at=places).groupby("at")["rsum"].agg(["mean", "std"])
                axes.errorbar(over.index, over["mean"], yerr=over["std"], label=label, **look)
            axes.set(title=title, xlabel="γ (ε 0.3 at 30, 0.7 at 60)", xticks=[30, 60], xlim=(22, 68))
        figure.axes[0].set_ylabel("rsum on test, plain search")
        figure.axes[0].legend(loc="lower right")
        caption = "HAL with a memory bank and without: mean and deviation over seeds, each run."
        return render(figure, "rsum", caption, None)


if __name__ == "__main__":
    main()
