"""Draw table.md, the figure and the README's generated parts from results.csv and expected.csv.

python experiments/architectures/render.py [FOLDER]
"""

import statistics
import sys
from itertools import combinations
from pathlib import Path

import pandas as pd

from vsehub.io.files import write_text

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evidence import judged, judged_table, read_expected, renew, study_folder, verdict  # noqa: E402 (found by the line above)
from plots import dots, save  # noqa: E402
from study import ARCHITECTURES, LOSSES  # noqa: E402

RECALLS = ("i2t/r1", "i2t/r5", "i2t/r10", "t2i/r1", "t2i/r5", "t2i/r10")


def spread(values: pd.Series) -> float:
    """The sample standard deviation, 0 of a single value."""
    return statistics.stdev(values) if len(values) > 1 else 0.0


def with_spread(values: pd.Series, digits: int = 1) -> str:
    """ "12.3 ± 0.4"."""
    mean = f"{statistics.mean(values):.{digits}f}"
    return f"{mean} ± {spread(values):.{digits}f}" if len(values) > 1 else mean


def table(frame: pd.DataFrame) -> str:
    """The means over the seeds, as markdown."""
    head = ["architecture", "loss", "seeds", *RECALLS, "rsum", "hs_sum", "s an epoch", "memory, MB"]
    lines = [f"| {' | '.join(head)} |", "| --- | --- | --- |" + " ---: |" * (len(head) - 3)]
    for (architecture, loss), runs in frame.groupby(["architecture", "loss"], observed=True):
        cells = [architecture, loss, ", ".join(map(str, runs["seed"]))]
        cells += [f"{runs[figure].mean():.1f}" for figure in RECALLS]
        cells += [with_spread(runs["rsum"]), with_spread(runs["hubness/hs_sum"], 2)]
        cells += [f"{runs['seconds_an_epoch'].median():.0f}", f"{runs['memory_mb'].max():,}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def order(runs: pd.DataFrame) -> list[tuple[str, str, bool]]:
    """(better, worse, beyond the spread) of every two losses of one architecture, by mean rsum."""
    sums = {loss: group["rsum"] for loss, group in runs.groupby("loss", observed=True)}
    found = []
    for one, other in combinations(sums, 2):
        better, worse = sorted((one, other), key=lambda loss: -sums[loss].mean())
        lead = sums[better].mean() - sums[worse].mean()
        several = len(sums[better]) > 1 and len(sums[worse]) > 1
        found.append((better, worse, several and bool(lead > spread(sums[better]) + spread(sums[worse]))))
    return found


def verdicts(frame: pd.DataFrame) -> str:
    """Which order holds where, in sentences made from the figures; a lead of one seed counts as none."""
    orders = {name: order(runs) for name, runs in frame.groupby("architecture", observed=True)}
    lines = []
    for name, runs in frame.groupby("architecture", observed=True):
        means = runs.groupby("loss", observed=True)["rsum"].mean().sort_values(ascending=False)
        within = [f"{better} over {worse}" for better, worse, beyond in orders[name] if not beyond]
        lines.append(
            f"- **{name}**: {' > '.join(f'{loss} {mean:.1f}' for loss, mean in means.items())}."
            + (f" Within the spread of the seeds, or of one seed: {', '.join(within)}." if within else "")
        )
    pairs = {tuple(sorted(pair[:2], key=LOSSES.index)) for found in orders.values() for pair in found}
    for pair in sorted(pairs, key=lambda two: [LOSSES.index(loss) for loss in two]):
        said = {
            name: (better if beyond else "undecided")
            for name, found in orders.items()
            for better, worse, beyond in found
            if {better, worse} == set(pair)
        }
        if len(said) > 1:
            kinds = set(said.values())
            told = ", ".join(f"{winner} in {name}" for name, winner in said.items())
            told = f"{next(iter(kinds))} in every architecture" if len(kinds) == 1 else told
            said = "no lead is beyond the spread in any architecture" if kinds == {"undecided"} else f"ahead is {told}"
            lines.append(f"- {pair[0]} against {pair[1]}: {said}.")
    recalls = frame["shortlist_recall"].dropna()
    if len(recalls):
        lines.append(
            f"- Recall of the bank's shortlists against exact scoring: {recalls.min():.3f} to {recalls.max():.3f}."
        )
    return "\n".join(lines)


def main() -> None:
    """Read the command line and write the files."""
    folder = study_folder(__doc__, HERE)
    frame = pd.read_csv(folder / "results.csv")
    frame["case"] = frame["architecture"] + " " + frame["loss"]
    claims = judged(frame, read_expected(folder), "case")
    caption = "rsum on the test split of each loss in each architecture: single seeds, mean and sample deviation."
    save(folder, dots(frame, "rsum", "loss", "architecture", "rsum", caption, "rsum, test"))
    frame["loss"] = pd.Categorical(frame["loss"], LOSSES)
    frame["architecture"] = pd.Categorical(frame["architecture"], list(ARCHITECTURES))
    place = f"One thread of {', '.join(sorted(set(frame['hardware'])))}; other work ran beside it."
    text = "\n\n".join([judged_table(claims), verdicts(frame), table(frame), place])
    write_text(folder / "table.md", f"# Losses by architecture\n\n{text}\n")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", text, "figures")


if __name__ == "__main__":
    main()
