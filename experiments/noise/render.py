"""Draw table.md, the figure and the README's generated parts from results.csv and expected.csv.

python experiments/noise/render.py [FOLDER]
"""

import sys
from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.plots import RC, Picture, new_figure, render
from vsehub.report.recipes import Series
from vsehub.report.run_plots import styles
from vsehub.report.tables import ReportTable

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from evidence import judged, judged_table, number, read_expected, renew, study_folder, verdict  # noqa: E402
from plots import save  # noqa: E402 (both beside or above this file, found by the line before)
from study import CLEAN, LOSSES, PROTOCOLS  # noqa: E402

TEST_IMAGES = 500  # of Flickr8k's test split here
WHAT = {"captions": "single captions are permuted", "images": "images are permuted, their captions with them"}


def with_drop(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with `case`, "max captions 0.2", and `drop`: clean rsum less rsum, of the same loss and seed."""
    clean = frame[frame["protocol"] == CLEAN].set_index(["loss", "seed"])["rsum"]
    keys = pd.MultiIndex.from_frame(frame[["loss", "seed"]])
    case = frame["loss"] + " " + frame["protocol"] + " " + frame["rate"].map("{:g}".format)
    return frame.assign(drop=clean.reindex(keys).to_numpy() - frame["rsum"], case=case)


def verdicts(claims: pd.DataFrame) -> str:
    """A sentence a protocol, since the two are not to be compared."""
    own = {name: claims[claims["higher"].str.contains(f" {name} ")] for name in PROTOCOLS}
    return " ".join(f"Protocol {name}: {verdict(rows)}" for name, rows in own.items())


def mean_and_deviation(values: pd.Series) -> str:
    """ "300.1 ± 2.0", the mean alone of one seed, a dash of none."""
    values = values.dropna()
    if len(values) < 2:
        return number(values.mean())
    return f"{values.mean():.1f} ± {values.std():.1f}"


def table(frame: pd.DataFrame, protocol: str) -> str:
    """rsum and what it lost to clean training, by loss and rate, as markdown."""
    own = frame[frame["protocol"].isin([CLEAN, protocol])]
    rates = sorted(own["rate"].unique())
    noisy = [rate for rate in rates if rate > 0]
    head = ["loss", "seeds", *(f"rsum at {rate:g}" if rate else "clean" for rate in rates)]
    head += [*(f"lost at {rate:g}" for rate in noisy)]
    rows = []
    for loss in [loss for loss in LOSSES if loss in set(own["loss"])]:
        runs = own[own["loss"] == loss]
        at = {rate: runs[runs["rate"] == rate] for rate in rates}
        cells = [loss, ", ".join(map(str, sorted(runs["seed"].unique())))]
        cells += [mean_and_deviation(at[rate]["rsum"]) for rate in rates]
        rows.append([*cells, *(mean_and_deviation(at[rate]["drop"]) for rate in noisy)])
    return ReportTable(head, rows, words=2).markdown()


def facts(frame: pd.DataFrame, protocol: str) -> str:
    """What must be known of the runs of a protocol: how many captions truly changed, what collapsed, when it ended."""
    own = frame[frame["protocol"] == protocol]
    shares = own.groupby("rate")["changed"].agg(["min", "max"])
    told = [f"{rate:g}: {100 * row['min']:.2f} to {100 * row['max']:.2f} %" for rate, row in shares.iterrows()]
    sentence = f"Training captions that truly belong to a wrong image, by rate: {'; '.join(told)}."
    fallen = own[own["collapsed"]]
    if len(fallen):
        sentence += f" Collapsed in training: {', '.join(fallen['case'] + ' seed ' + fallen['seed'].astype(str))}."
    first, last = own["best_epoch"].min(), own["best_epoch"].max()
    return f"{sentence} The epochs chosen on val were {first} to {last} of 0 to {own['epochs'].max() - 1}."


def curves(frame: pd.DataFrame) -> Picture:
    """Mean and sample deviation of rsum over the rate, a line a loss, a panel a protocol; single runs as faint dots."""
    looks = styles(Series("", "", loss, "") for loss in LOSSES)
    with matplotlib.rc_context(RC):
        whole = new_figure(8.5, 4.2)
        panels = whole.subplots(1, len(PROTOCOLS))
        for axes, protocol in zip(panels, PROTOCOLS, strict=True):
            own = frame[frame["protocol"].isin([CLEAN, protocol])]
            for loss in LOSSES:
                runs, look = own[own["loss"] == loss], looks[loss]
                if runs.empty:
                    continue
                bare = {"color": look["color"], "marker": look["marker"], "linestyle": "none"}
                axes.plot(runs["rate"], runs["rsum"], alpha=0.3, markersize=3.5, **bare)
                told = runs.groupby("rate")["rsum"].agg(["mean", "std"])
                axes.errorbar(told.index, told["mean"], yerr=told["std"].fillna(0), label=loss, capsize=2, **look)
            axes.set(title=f"protocol {protocol}", xlabel="rate", xticks=sorted(own["rate"].unique()))
        panels[0].set_ylabel("rsum, test")
        panels[-1].legend()
        caption = "rsum on the test split over the rate of noise in the training captions."
        return render(whole, "rsum_over_rate", caption, None)


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = with_drop(pd.read_csv(folder / "results.csv"))
    claims = judged(frame, read_expected(folder), "case", TEST_IMAGES)
    save(folder, curves(frame))
    parts = [judged_table(claims).markdown()]
    for protocol in [protocol for protocol in PROTOCOLS if protocol in set(frame["protocol"])]:
        parts += [f"**Protocol {protocol}**: {WHAT[protocol]}.", table(frame, protocol), facts(frame, protocol)]
    place = ", ".join(sorted(frame["hardware"].unique()))
    parts.append(f"Data: {', '.join(sorted(frame['dataset'].unique()))}. Hardware: {place}.")
    text = "\n\n".join(parts)
    write_text(folder / "table.md", f"# Losses under noise in the training captions\n\n{text}\n")
    renew(folder / "README.md", verdicts(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
