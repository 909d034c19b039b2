"""Draw table.md, the figures and the README's generated parts from results.csv, photos.csv and expected.csv.

python experiments/architectures/render.py [FOLDER]
"""

import sys
from itertools import combinations
from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.io.files import write_text
from vsehub.report.plots import COLOURS, RC, Picture, new_figure, render
from vsehub.report.tables import ReportTable, spread_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import judged, judged_table, read_expected, renew, spread, study_folder, verdict  # noqa: E402 (found by the line above)
from plots import dots, save  # noqa: E402
from study import ARCHITECTURES, LOSSES  # noqa: E402

TEST_IMAGES = 500  # of Flickr8k's test split here
RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")


def table(frame: pd.DataFrame) -> str:
    """The means over the seeds, as markdown."""
    head = ["architecture", "loss", "seeds", *RECALLS, "rsum", "hs_sum", "s an epoch", "memory, MB"]
    rows = []
    for (architecture, loss), runs in frame.groupby(["architecture", "loss"], observed=True):
        cells = [architecture, loss, ", ".join(map(str, runs["seed"]))]
        cells += [f"{runs[metric].mean():.1f}" for metric in RECALLS]
        for metric, digits in (("rsum", 1), ("hubness/hs_sum", 2)):
            cells.append(spread_text(runs[metric].mean(), runs[metric].std(), digits))
        rows.append([*cells, f"{runs['seconds_an_epoch'].median():.0f}", f"{runs['memory_mb'].max():,}"])
    return ReportTable(head, rows, words=3).markdown()


def differences(frame: pd.DataFrame) -> str:
    """rsum of one loss less that of another in each architecture, over the seeds that both have, as markdown."""
    names = [name for name in ARCHITECTURES if name in set(frame["architecture"])]
    sums = frame.pivot(index="seed", columns=["architecture", "loss"], values="rsum")
    rows = []
    for one, other in combinations(LOSSES, 2):
        cells = []
        for name in names:
            both = (name, one) in sums and (name, other) in sums
            own = (sums[name, one] - sums[name, other]).dropna() if both else pd.Series(dtype=float)
            cells.append(f"{spread(own.mean(), own.std())} (n {len(own)})" if len(own) else "–")
        rows.append([f"{one} − {other}", *cells])
    caption = "Differences in rsum, seed by seed: mean ± sample deviation over n seeds."
    return ReportTable(["losses", *names], rows, caption).markdown()


def photos(frame: pd.DataFrame) -> Picture:
    """rsum on val by epoch of the long training on photos, and on test."""
    epochs, test = frame[frame["val/rsum"].notna()], frame.iloc[-1]
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 3.2)
        axes = figure.subplots()
        axes.plot(epochs["epoch"], epochs["val/rsum"], color=COLOURS[0], label="val")
        axes.plot(test["epoch"], test["test/rsum"], "D", color=COLOURS[1], label="test, the best epoch by val")
        axes.set(xlabel="epoch, counted from 0", ylabel="rsum, plain search", ylim=(0, None))
        axes.legend(loc="lower right")
        return render(figure, "photos", "A small network trained from scratch on photos: rsum by epoch.", None)


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    frame["case"] = frame["architecture"] + " " + frame["loss"]
    claims = judged(frame, read_expected(folder), "case", TEST_IMAGES)
    caption = "rsum on the test split of each loss in each architecture: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "loss", "architecture", "rsum", caption, "rsum, test"))
    save(folder, photos(pd.read_csv(folder / "photos.csv")))
    frame["loss"] = pd.Categorical(frame["loss"], LOSSES)
    frame["architecture"] = pd.Categorical(frame["architecture"], list(ARCHITECTURES))
    place = f"One thread of {', '.join(sorted(set(frame['hardware'])))}; other work ran beside it."
    recalls = frame["shortlist_recall"].dropna()
    lists = f"Recall of the bank's shortlists against exact scoring: {recalls.min():.3f} to {recalls.max():.3f}."
    parts = [
        judged_table(claims).markdown(),
        differences(frame),
        table(frame),
        *([lists] if len(recalls) else []),
        place,
    ]
    text = "\n\n".join(parts)
    write_text(folder / "table.md", f"# Losses by architecture\n\n{text}\n")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
