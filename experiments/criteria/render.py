"""Draw table.md, the figure and the README's generated parts from results.csv and expected.csv.

    python experiments/criteria/render.py [FOLDER]

Differences to nns are taken run by run, so that what a seed does to both is not counted as spread.
"""

import math
import sys
from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.plots import COLOURS, MARKERS, RC, new_figure, render

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from collect import COLUMNS, SIDES  # noqa: E402 (beside this file)
from evidence import judged, judged_table, read_expected, renew, study_folder, verdict  # noqa: E402 (found above)
from plots import save  # noqa: E402

CASE = ["loss", "criterion", "reference", "settings"]


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
        (frame["settings"] == "tuned") | frame["criterion"].isin(["nns", "gm", "assignment", "mutual_proximity"])
    ]
    own = fitted[fitted["reference"] != "inductive"].sort_values("rsum", ascending=False, kind="stable")
    ranks = list(own["criterion"])
    told.append(
        f"Order by mean rsum (transductive, tuned on val where there is something to fit): {' > '.join(ranks)}."
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
                best = rows[(rows["settings"] == "tuned") | (len(rows) == 1)]
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
        caption = "R@1 and R@10 of each criterion, transductive, tuned on val: mean and deviation over seeds."
        return render(figure, "r1-against-r10", caption, None)


def chosen(frame: pd.DataFrame) -> pd.DataFrame:
    """Each run's transductive figures, fitted where there is something to fit: one row a loss, criterion and seed."""
    own = frame[frame["reference"] != "inductive"].sort_values("settings")  # "default" before "tuned"
    own = own.drop_duplicates(["loss", "criterion", "seed"], keep="last")
    return own.assign(case=own["loss"] + " " + own["criterion"])


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    means = differences(frame)
    claims = judged(chosen(frame), read_expected(folder), "case", paired=True)
    parts = [judged_table(claims)]
    for loss, rows in means.groupby("loss", sort=False):
        sentences = "\n".join(f"- {sentence}" for sentence in verdicts(rows))
        seeds = ", ".join(str(seed) for seed in sorted(set(frame.loc[frame["loss"] == loss, "seed"])))
        parts.append(f"### Trained with {loss}, seeds {seeds}\n\n{sentences}\n\n{table(rows)}")
    text = "\n\n".join(parts)
    write_text(folder / "table.md", f"# Criteria\n\n{text}\n")
    save(folder, picture(means))
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
