"""results.csv, correlations.csv, the figure and the README's table from what `measure.py` wrote.

    python experiments/diagnosis/collect.py runs/diagnosis
    python experiments/diagnosis/collect.py                  from the committed results.csv alone

The gain of a correction is the rise of R@1 + R@5 + R@10 of one direction over plain search.
"""

import argparse
import json
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pandas as pd
from scipy import stats

from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.plots import RC, Picture, new_figure, plain, render
from vsehub.report.recipes import Series
from vsehub.report.run_plots import styles
from vsehub.report.tables import Table

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)
from plots import save  # noqa: E402

SIDES = {"i2t": "image to text", "t2i": "text to image"}
K = 10
PREDICTORS = {
    f"skew_{K}": f"skewness of N_{K}",
    f"robin_hood_{K}": f"Robin Hood index of N_{K}",
    f"gini_{K}": f"Gini index of N_{K}",
    f"antihub_rate_{K}": f"share of items with N_{K} = 0",
    f"largest_hub_{K}": f"largest N_{K}",
    f"bad_skew_{K}": f"skewness of bad N_{K}",
    "relative_variance": "relative variance of distances",
    "recall": "R@1 + R@5 + R@10 before",
}
DRAWS = 2000


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("measured", nargs="?", type=Path)
    parser.add_argument("--folder", type=Path, default=HERE, help="default: the study's own")
    arguments = parser.parse_args()
    folder = arguments.folder
    if arguments.measured is not None:
        frame = results(arguments.measured)
        write_text(folder / "results.csv", frame.to_csv(index=False, float_format="%.6g"))
    frame = pd.read_csv(folder / "results.csv")
    found = correlations(frame)
    write_text(folder / "correlations.csv", found.to_csv(index=False, float_format="%.4f"))
    save(folder, picture(frame))
    renew(folder / "README.md", text(frame, found))


def results(measured: Path) -> pd.DataFrame:
    """A row for each run, direction and correction."""
    rows = []
    for path in sorted(measured.glob("*.json")):
        record = json.loads(path.read_text())
        for side in SIDES:
            before = recall(record["plain"], side)
            facts = {"run": path.stem, "loss": record["label"], "seed": record["seed"], "epochs": record["epochs"]}
            facts |= {"direction": side, "recall": before}
            facts |= {name: record["plain"][f"hubness/{side}/{name}"] for name in PREDICTORS if name not in facts}
            for cell, metrics in record["corrected"].items():
                criterion, reference = cell.split()
                gain = recall(metrics, side) - before
                rows.append(facts | {"criterion": criterion, "reference": reference, "gain": gain})
    require(bool(rows), f"{measured} holds no measurements; run experiments/diagnosis/measure.py first")
    return pd.DataFrame(rows)


def recall(metrics: dict[str, float], side: str) -> float:
    """R@1 + R@5 + R@10 of a direction."""
    return sum(metrics[f"{side}/r{k}"] for k in (1, 5, 10))


def correlations(frame: pd.DataFrame) -> pd.DataFrame:
    """Spearman's ρ of each predictor with the gain, over the runs, with its percentile bootstrap interval over runs.

    within: the mean of the ρ of each loss's own runs, which differences between the losses do not enter; of losses
    with at least five runs.
    """
    rows = []
    for (side, criterion, reference), cell in frame.groupby(["direction", "criterion", "reference"], sort=False):
        gain = cell["gain"].to_numpy()
        random = np.random.default_rng(0)
        drawn = random.integers(0, len(cell), (DRAWS, len(cell)))
        groups = [own for _, own in cell.groupby("loss") if len(own) >= 5]
        for name in PREDICTORS:
            values = cell[name].to_numpy()
            resampled = [rho(values[one], gain[one]) for one in drawn]
            low, high = np.nanquantile(resampled, [0.025, 0.975])
            within = [rho(own[name].to_numpy(), own["gain"].to_numpy()) for own in groups]
            rows.append(
                {
                    "direction": side,
                    "criterion": criterion,
                    "reference": reference,
                    "predictor": name,
                    "runs": len(cell),
                    "rho": rho(values, gain),
                    "low": low,
                    "high": high,
                    "within": np.nanmean(within) if within else np.nan,
                }
            )
    return pd.DataFrame(rows)


def rho(one: np.ndarray, other: np.ndarray) -> float:
    """Spearman's rank correlation; NaN where one side is all equal."""
    if len(set(one)) < 2 or len(set(other)) < 2:
        return float("nan")
    return float(stats.spearmanr(one, other).statistic)


def text(frame: pd.DataFrame, found: pd.DataFrame) -> str:
    """Markdown: predictors by correction and direction, inductive."""
    shown = found[found["reference"] == "inductive"]
    criteria = list(dict.fromkeys(shown["criterion"]))
    parts = [f"{frame['run'].nunique()} models of {frame['loss'].nunique()} losses.\n"]
    for side, title in SIDES.items():
        lines = []
        for name, label in PREDICTORS.items():
            own = shown[(shown["direction"] == side) & (shown["predictor"] == name)].set_index("criterion")
            lines.append([label, *(cell(own.loc[criterion]) for criterion in criteria)])
        parts.append(Table([title, *criteria], lines, "").markdown())
    return "\n".join(parts)


def cell(row: pd.Series) -> str:
    """ "0.71 [0.52, 0.84]", bold where the interval excludes 0; then the mean within the losses."""
    told = f"{row['rho']:.2f} [{row['low']:.2f}, {row['high']:.2f}]"
    told = f"**{told}**" if row["low"] > 0 or row["high"] < 0 else told
    return told if np.isnan(row["within"]) else f"{told}; {row['within']:.2f}"


def picture(frame: pd.DataFrame) -> Picture:
    """The gain of the inductive inverted softmax over the skewness before it, a dot a model."""
    shown = frame[(frame["criterion"] == "is") & (frame["reference"] == "inductive")]
    looks = styles(Series("", "", loss, "") for loss in dict.fromkeys(shown["loss"]))
    with matplotlib.rc_context(RC):
        figure = new_figure(8.5, 3.8)
        for axes, (side, title) in zip(figure.subplots(1, 2), SIDES.items(), strict=True):
            for loss, own in shown[shown["direction"] == side].groupby("loss", sort=False):
                look = {key: looks[loss][key] for key in ("color", "marker")}
                axes.plot(own[f"skew_{K}"], own["gain"], linestyle="none", markersize=5, label=plain(loss), **look)
            axes.axhline(0, color="#555555", linewidth=0.9)
            axes.set(title=title, xlabel=f"skewness of N_{K}, plain search", ylabel="gain in R@1 + R@5 + R@10")
        axes.legend()
        caption = (
            "What the inverted softmax gains (inductive, tuned on validation) over the hubness of plain search, a dot "
            "a model."
        )
        return render(figure, "gain", caption, None)


if __name__ == "__main__":
    main()
