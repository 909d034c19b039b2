"""Tables, verdicts and figure of the criteria study, from what `measure.py` wrote; the README's generated part.

    python experiments/criteria/collect.py FOLDER [--out experiments/criteria]

Differences to nns are taken run by run, so that what a seed does to both is not counted as spread.
"""

import argparse
import json
import math
import sys
from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.checks import require
from vsehub.files import atomic, write_text
from vsehub.report.drawing import COLOURS, MARKERS, RC, new_figure, render
from vsehub.report.recipes import label_rank

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import renew  # noqa: E402 (beside this folder, found by the line above)

SIDES = ("i2t", "t2i")
COLUMNS = {f"{side}_r{k}": f"{side}/r{k}" for side in SIDES for k in (1, 5, 10)} | {
    "rsum": "rsum",
    "map_r_i2t": "i2t/map_r",
    "meanr_i2t": "i2t/meanr",
    "meanr_t2i": "t2i/meanr",
    "hs_sum": "hubness/hs_sum",
}
CASE = ["loss", "criterion", "reference", "settings"]


def results(folder: Path) -> pd.DataFrame:
    """One row a measurement."""
    rows = []
    for file in sorted(folder.glob("*/*.json")):
        record = json.loads(file.read_text())
        loss, _, seed = file.parent.name.rpartition("-")
        rows.append(
            {
                "loss": loss,
                "seed": int(seed),
                "criterion": record["criterion"],
                "reference": record["reference"],
                "settings": "fitted" if record["fit"] else "default",
                "parameters": json.dumps(record["parameters"]),
                "val_rsum": record["fit"]["rsum"] if record["fit"] else None,
                "split": record["split"],
                "images": record["images"],
                "texts": record["texts"],
                "protocol": record["protocol"],
                "seconds": record["ranking_seconds"],
            }
            | {name: record["metrics"][key] for name, key in COLUMNS.items()}
        )
    frame = pd.DataFrame(rows)
    frame["r1"] = frame["i2t_r1"] + frame["t2i_r1"]
    frame["r10"] = frame["i2t_r10"] + frame["t2i_r10"]
    frame = frame.sort_values(["seed", "criterion", "reference", "settings"])
    return frame.sort_values("loss", key=lambda names: names.map(label_rank), kind="stable", ignore_index=True)


def differences(frame: pd.DataFrame) -> pd.DataFrame:
    """Each case's means over the seeds, and its difference to nns of the same runs: mean and sample deviation."""
    base = frame[frame["criterion"] == "nns"].set_index(["loss", "seed"])
    lacking = sorted(set(zip(frame["loss"], frame["seed"], strict=True)) - set(base.index))
    require(not lacking, f"no nns of {lacking}; measure these runs to the end")
    told = []
    for case, rows in frame.groupby(CASE, sort=False):
        own = rows.set_index(["loss", "seed"])
        line = dict(zip(CASE, case, strict=True)) | {"seeds": len(own)}
        for name in ("rsum", "r1", "r10", "meanr_t2i", "hs_sum"):
            change = own[name] - base.loc[own.index, name]
            line |= {f"d_{name}": change.mean(), f"d_{name}_sd": deviation(change)}
        numeric = [*COLUMNS, "seconds", "r1", "r10"]
        told.append(line | own[numeric].mean().to_dict() | {"rsum_sd": deviation(own["rsum"])})
    return pd.DataFrame(told)


def deviation(values: pd.Series) -> float:
    """Sample standard deviation; with one seed nothing is beyond the spread."""
    return values.std() if len(values) > 1 else math.inf


def table(frame: pd.DataFrame) -> str:
    """The cases of one loss as markdown, the largest rsum first."""
    head = [
        "criterion", "reference", "settings", "i2t R@1", "R@5", "R@10", "t2i R@1", "R@5", "R@10", "rsum",
        "rsum - nns", "hs_sum", "seconds",
    ]  # fmt: skip
    lines = ["| " + " | ".join(head) + " |", "|" + " --- |" * 3 + " ---: |" * (len(head) - 3)]
    for _, row in frame.sort_values("rsum", ascending=False, kind="stable").iterrows():
        recalls = [f"{row[f'{side}_r{k}']:.1f}" for side in SIDES for k in (1, 5, 10)]
        change = "" if row["criterion"] == "nns" else f"{row['d_rsum']:+.1f} ± {row['d_rsum_sd']:.1f}"
        cells = [row["criterion"], row["reference"], row["settings"], *recalls]
        cells += [f"{row['rsum']:.1f} ± {row['rsum_sd']:.1f}", change, f"{row['hs_sum']:.2f}", f"{row['seconds']:.2f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def verdicts(frame: pd.DataFrame) -> list[str]:
    """What one loss's cases say: beyond the spread of the difference, and nothing more."""
    told = []
    fitted = frame[
        (frame["settings"] == "fitted") | frame["criterion"].isin(["nns", "gm", "assignment", "mutual_proximity"])
    ]
    own = fitted[fitted["reference"] != "inductive"].sort_values("rsum", ascending=False, kind="stable")
    ranks = list(own["criterion"])
    told.append(
        f"Order by mean rsum (transductive, fitted on val where there is something to fit): {' > '.join(ranks)}."
    )
    first, second = own.iloc[0], own.iloc[1]
    lead = first["rsum"] - second["rsum"]
    spread = first["d_rsum_sd"] + second["d_rsum_sd"]
    told.append(
        f"{first['criterion']} leads {second['criterion']} by {lead:.1f} rsum, "
        + ("more than" if lead > spread else "within")
        + f" the spread of their differences to nns ({spread:.1f})."
    )
    papers = own.set_index("criterion")["rsum"]
    named = [name for name in ("gm", "nns", "rgm", "is", "csls", "is+rgm", "csls+rgm") if name in papers]
    told.append("The papers' seven, worst first: " + " < ".join(sorted(named, key=lambda name: papers[name])) + ".")
    unseen = fitted[fitted["reference"] != "transductive"].sort_values("rsum", ascending=False, kind="stable")
    told.append(f"Order by mean rsum, inductive: {' > '.join(unseen['criterion'])}.")
    worse = frame[(frame["d_r1"] > frame["d_r1_sd"]) & (frame["d_r10"] < -frame["d_r10_sd"])]
    names = [f"{row['criterion']} ({row['reference']}, {row['settings']})" for _, row in worse.iterrows()]
    told.append(
        "R@1 up and R@10 down, both beyond the spread: " + (", ".join(names) if names else "no criterion") + "."
    )
    deeper = frame[(frame["d_r1"] > frame["d_r1_sd"]) & (frame["d_meanr_t2i"] > frame["d_meanr_t2i_sd"])]
    names = [f"{row['criterion']} ({row['reference']}, {row['settings']})" for _, row in deeper.iterrows()]
    told.append(
        "R@1 up and text to image's mean rank worse, both beyond the spread: "
        + (", ".join(names) if names else "no criterion")
        + "."
    )
    return told


def picture(frame: pd.DataFrame):
    """R@1 against R@10, both as differences to nns, with deviations; one panel a loss."""
    losses = list(dict.fromkeys(frame["loss"]))
    criteria = [name for name in dict.fromkeys(frame["criterion"]) if name != "nns"]
    with matplotlib.rc_context(RC):
        figure = new_figure(4.6 * len(losses) + 2, 4.4)
        for axes, loss in zip(figure.subplots(1, len(losses), sharey=True, squeeze=False)[0], losses, strict=True):
            for number, name in enumerate(criteria):
                rows = frame[
                    (frame["loss"] == loss) & (frame["criterion"] == name) & (frame["reference"] == "transductive")
                ]
                best = rows[(rows["settings"] == "fitted") | (len(rows) == 1)]
                axes.errorbar(
                    best["d_r1"],
                    best["d_r10"],
                    xerr=best["d_r1_sd"],
                    yerr=best["d_r10_sd"],
                    fmt=MARKERS[number % len(MARKERS)],
                    color=COLOURS[number % len(COLOURS)],
                    markerfacecolor="white" if number >= len(COLOURS) else None,
                    elinewidth=0.8,
                    label=name,
                )
            axes.axhline(0, color="#555555", linewidth=0.8)
            axes.axvline(0, color="#555555", linewidth=0.8)
            axes.set(title=loss, xlabel="R@1 - nns, both directions added")
        figure.axes[0].set_ylabel("R@10 - nns, both directions added")
        figure.axes[-1].legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = "R@1 and R@10 of each criterion, transductive, fitted on val: mean and deviation over seeds."
        return render(figure, "r1-against-r10", caption, None)


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=HERE)
    arguments = parser.parse_args()
    frame = results(arguments.folder)
    means = differences(frame)
    write_text(arguments.out / "results.csv", frame.to_csv(index=False, float_format="%.6g"))
    parts = []
    for loss, rows in means.groupby("loss", sort=False):
        sentences = "\n".join(f"- {sentence}" for sentence in verdicts(rows))
        seeds = ", ".join(str(seed) for seed in sorted(set(frame.loc[frame["loss"] == loss, "seed"])))
        parts.append(f"### Trained with {loss}, seeds {seeds}\n\n{sentences}\n\n{table(rows)}")
    write_text(arguments.out / "table.md", "\n\n".join(parts) + "\n")
    drawn = picture(means)
    with atomic(arguments.out / "figures" / f"{drawn.name}.png") as handle:
        handle.write(drawn.png)
    if (arguments.out / "README.md").exists():
        renew(arguments.out / "README.md", "\n\n".join(parts) + "\n")


if __name__ == "__main__":
    main()
