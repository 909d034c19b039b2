"""The papers' figures, drawn from the study's tables."""

from collections.abc import Iterable

import matplotlib
import pandas as pd
from matplotlib.ticker import MaxNLocator, NullLocator

from vsehub.report.pages.curves import cumulated_shares
from vsehub.report.pictures import COLOURS, LINE_STYLES, MARKERS, Picture
from vsehub.report.plots import RC, literal_text, new_figure, render
from vsehub.report.recipes import Series
from vsehub.report.run_plots import styles

DIRECTIONS = {"i2t": "image to text", "t2i": "text to image"}
AXES = {
    "batch_size": "pairs in a batch",
    "k": "k, the neighbours or negatives counted",
    "bank": "share of the training pairs in the bank",
}


def looks(losses: Iterable[str]) -> dict[str, dict]:
    """Colour, marker and line of each loss."""
    return styles([Series("", "", loss, "") for loss in dict.fromkeys(losses)])


def _look(number: int) -> dict:
    """Colour, marker and line of lines that are not losses."""
    line = LINE_STYLES[number // len(COLOURS) % len(LINE_STYLES)]
    return {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)], "linestyle": line}


def over_epochs(frame: pd.DataFrame) -> Picture:
    """frame: epochs.csv's rows of the runs that compare the losses."""
    look = looks(frame["loss"])
    with matplotlib.rc_context(RC):
        figure = new_figure(8, 4.2)
        axes = figure.add_subplot()
        for loss, rows in frame.groupby("loss", sort=False):
            seeds = rows.pivot(index="epoch", columns="seed", values="val_rsum")
            mean, spread = seeds.mean(axis=1), seeds.std(axis=1).fillna(0)
            axes.plot(seeds.index, mean, label=literal_text(loss), markersize=4.5, linewidth=1.8, **look[loss])
            axes.fill_between(seeds.index, mean - spread, mean + spread, color=look[loss]["color"], alpha=0.16, lw=0)
        for epoch in sorted(set(frame["decay"].dropna())):
            axes.axvline(epoch + 0.5, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
        axes.set(xlabel="epoch", ylabel="validation rsum")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = (
            "Validation rsum over epochs: mean and sample deviation over seeds; the dashed line is where the learning "
            "rate falls to a tenth."
        )
        return render(figure, "epochs", caption)


def over_setting(frame: pd.DataFrame, name: str) -> Picture:
    """frame: results.csv's nns rows of a sweep; name: its column."""
    look = looks(frame["loss"])
    with matplotlib.rc_context(RC):
        figure = new_figure(6.4, 4)
        axes = figure.add_subplot()
        for loss, rows in frame.groupby("loss", sort=False):
            spread_of = rows.groupby(name)["rsum"].agg(["mean", "std"])
            axes.plot(rows[name], rows["rsum"], look[loss]["marker"], color=look[loss]["color"], ms=3.5, alpha=0.35)
            axes.errorbar(
                spread_of.index,
                spread_of["mean"],
                yerr=spread_of["std"].fillna(0),
                label=literal_text(loss),
                **look[loss],
            )
        values = sorted(set(frame[name]))
        axes.set(xscale="log", xlabel=AXES[name], ylabel="rsum, test")
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.xaxis.set_minor_locator(NullLocator())
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = "rsum on test: each seed, mean, sample deviation."
        return render(figure, name.replace("_", "-"), caption)


def found_how_often(frame: pd.DataFrame, case: str, name: str) -> Picture:
    """frame: occurrences.csv's rows of one criterion or one loss; case: the other of the two columns."""
    cases = list(dict.fromkeys(frame[case]))
    styles_of = looks(cases) if case == "loss" else {label: _look(number) for number, label in enumerate(cases)}
    lines = {label: {key: look[key] for key in ("color", "linestyle")} for label, look in styles_of.items()}
    with matplotlib.rc_context(RC):
        figure = new_figure(9.4, 4.2)
        for axes, (side, heading) in zip(figure.subplots(1, 2, sharey=True), DIRECTIONS.items(), strict=True):
            for case_name in cases:
                rows = frame[(frame[case] == case_name) & (frame["direction"] == side)].sort_values("occurrences")
                if rows.empty:
                    continue
                occurrences, shares, never = cumulated_shares({key: rows[key] for key in ("occurrences", "items")})
                label = f"{literal_text(case_name)}: {100 * never:.1f} % never"
                axes.plot(occurrences, shares, drawstyle="steps-pre", linewidth=1.7, label=label, **lines[case_name])
                axes.plot(occurrences[-1:], shares[-1:], "o", color=lines[case_name]["color"], markersize=5)
            axes.set(xscale="log", yscale="log", title=heading, xlabel="$N$: queries that find the item")
            axes.legend(fontsize=8.5, loc="lower left")
        figure.axes[0].set_ylabel("share of items found by at least $N$")
        caption = "Share of the items that are among the 10 nearest of at least N queries, all seeds together."
        return render(figure, name, caption)


def over_lambda(frame: pd.DataFrame, plain_search: pd.DataFrame) -> Picture:
    """frame: lambda.csv's rows on test; plain_search: results.csv's nns rows of the same runs."""
    look = looks(frame["loss"])
    with matplotlib.rc_context(RC):
        figure = new_figure(9.4, 4.2)
        for axes, (side, heading) in zip(figure.subplots(1, 2), DIRECTIONS.items(), strict=True):
            for loss, rows in frame.groupby("loss", sort=False):
                spread_of = rows.groupby("relaxation")[f"{side}_r10"].agg(["mean", "std"])
                axes.plot(spread_of.index, spread_of["mean"], label=literal_text(loss), markersize=4.5, **look[loss])
                low, high = (spread_of["mean"] + sign * spread_of["std"].fillna(0) for sign in (-1, 1))
                axes.fill_between(spread_of.index, low, high, color=look[loss]["color"], alpha=0.13, lw=0)
                nearest = plain_search.loc[plain_search["loss"] == loss, f"{side}_r10"].mean()
                axes.axhline(nearest, color=look[loss]["color"], linewidth=0.8, linestyle=(0, (2, 2)))
            axes.set(title=heading, xlabel="λ", ylabel="R@10, test")
        figure.axes[1].legend(loc="upper left", bbox_to_anchor=(1, 1))
        caption = (
            "R@10 of relaxed greedy matching over λ: mean and sample deviation over seeds; thin dashes are plain "
            "nearest neighbours."
        )
        return render(figure, "lambda", caption)


def hubness_and_rsum(points: pd.DataFrame, by_criterion: pd.DataFrame) -> Picture:
    """points: results.csv's nns rows of all runs; by_criterion: all rows of the runs that compare the losses."""
    look = looks(points["loss"])
    criteria = list(dict.fromkeys(by_criterion["criterion"]))
    with matplotlib.rc_context(RC):
        figure = new_figure(9.6, 4.4)
        first, second = figure.subplots(1, 2)
        for loss, rows in points.groupby("loss", sort=False):
            style = {key: look[loss][key] for key in ("color", "marker")}
            first.plot(
                rows["hs_sum"], rows["rsum"], linestyle="none", ms=5, label=literal_text(loss), alpha=0.8, **style
            )
        first.set(title="nns, all runs, by loss", ylabel="rsum, test")
        if points["hs_sum"].min() > 0 and points["hs_sum"].max() > 8 * points["hs_sum"].min():
            first.set_xscale("log")
        for number, criterion in enumerate(criteria):
            rows = by_criterion[by_criterion["criterion"] == criterion]
            style = {"color": COLOURS[number % len(COLOURS)], "marker": MARKERS[number % len(MARKERS)]}
            second.plot(
                rows["hs_sum"], rows["rsum"], linestyle="none", ms=5, label=literal_text(criterion), alpha=0.8, **style
            )
        second.set(title="the losses' runs, by criterion")
        for axes in (first, second):
            axes.set_xlabel("hs_sum (hubness)")
            axes.legend(fontsize=8.5)
        caption = "rsum against hubness on test; a point is a run under one criterion."
        return render(figure, "hubness", caption)
