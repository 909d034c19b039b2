"""The plots of runs: validation rsum over epochs, k-occurrences in log-log, rsum by loss and criterion."""

from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator

from vsehub.report.pictures import COLOURS, LINE_STYLES, MARKERS, Picture, ranking_colours
from vsehub.report.plots import RC, label_counts, literal_text, new_figure, render
from vsehub.report.recipes import LABEL_ORDER, Series, label_rank, series_rank
from vsehub.report.results import DIRECTIONS
from vsehub.report.runs import Run

K = 10  # of the k-occurrences


def styles(series: Iterable[Series]) -> dict[str, dict]:
    """Colour, marker and line of each loss and variant, by the series' title: the same in every plot.

    The papers' losses look the same in every report. Other losses, and then further variants of a loss, take the
    remaining colours; once all are taken, the colours repeat with other markers and lines.
    """
    ordered = sorted({(label_rank(each.label), each.variant, each.title, each.label) for each in series})
    # The first variant of each loss: later entries overwrite.
    first = {label: title for _, _, title, label in reversed(ordered)}
    numbers = {first[label]: number for number, label in enumerate(LABEL_ORDER) if label in first}
    titles = [title for _, _, title, _ in ordered]
    others = [title for title in titles if title not in numbers]
    others.sort(key=lambda title: title not in first.values())  # further variants of a loss come last
    free = sorted(set(range(len(titles) + len(LABEL_ORDER))) - set(numbers.values()))
    numbers |= dict(zip(others, free, strict=False))  # there are more free numbers than titles
    return {
        title: {
            "color": COLOURS[numbers[title] % len(COLOURS)],
            "marker": MARKERS[(numbers[title] + numbers[title] // len(COLOURS)) % len(MARKERS)],
            "linestyle": LINE_STYLES[numbers[title] // len(COLOURS) % len(LINE_STYLES)],
        }
        for title in titles
    }


@matplotlib.rc_context(RC)
def curves(
    runs: Sequence[Run], series_by_run: dict[str, Series], title_styles: dict[str, dict], name: str
) -> Picture | None:
    """Plot of validation rsum over epochs, mean and spread over the seeds; None if no run has an epoch."""
    needed = ["epoch", "val/rsum"]
    figure = new_figure(9.4, 4.4)
    axes = figure.add_subplot()
    for series in sorted({series_by_run[run.path] for run in runs}, key=series_rank):
        histories = [run.history for run in runs if series_by_run[run.path] == series and {*needed} <= set(run.history)]
        if histories:
            rows = [history.dropna(subset=needed).drop_duplicates("epoch", keep="last") for history in histories]
            by_epoch = pd.concat(rows).groupby("epoch")["val/rsum"]
            mean, spread, style = by_epoch.mean(), by_epoch.std(), title_styles[series.title]
            axes.plot(mean.index + 1, mean, label=literal_text(series.title), markersize=4.5, linewidth=1.6, **style)
            axes.fill_between(
                mean.index + 1, mean - spread, mean + spread, color=style["color"], alpha=0.2, linewidth=0
            )
    if not axes.lines:
        return None
    axes.set(xlabel="epoch", ylabel="validation rsum")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    caption = "Validation rsum (sum of the six recalls) after each epoch: mean and standard deviation over the seeds."
    return render(figure, name, caption)


@matplotlib.rc_context(RC)
def occurrences(rows: pd.DataFrame, title_styles: dict[str, dict], name: str) -> Picture | None:
    """Plot of the share of items that have each N_k, both directions, log-log.

    rows: `results` of one setting; those of plain search are drawn. None if they have no counts.
    """
    shown = rows[(rows["criterion"] == "nns") & rows["histograms"].notna()]
    counts = [
        pd.DataFrame(sides[side][str(K)]).assign(side=side, series=title)
        for title, sides in zip(shown["series"], shown["histograms"], strict=True)
        for side in DIRECTIONS
        if str(K) in sides[side]
    ]
    if not counts:
        return None
    pooled = pd.concat(counts).groupby(["side", "series", "occurrences"])["items"].sum()
    figure = new_figure(9.4, max(4.2, 0.2 * shown["series"].nunique()))
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (side, heading) in zip(grid, DIRECTIONS.items(), strict=True):
        for title in (title for title in title_styles if title in set(shown["series"])):
            shares = pooled[side, title] / pooled[side, title].sum()
            nonzero = shares[shares.index > 0]
            label = f"{literal_text(title)}: {100 * shares.get(0, 0.0):.1f} %"
            style = {key: title_styles[title][key] for key in ("color", "marker")}
            axes.plot(nonzero.index, nonzero, linestyle="none", markersize=4.5, alpha=0.75, mew=0, label=label, **style)
        axes.set(xscale="log", yscale="log", title=heading, xlabel=f"$N_{{{K}}}$: queries that find the item")
        label_counts(axes)
        axes.legend(title=f"never found ($N_{{{K}}}=0$)", alignment="left", fontsize=9, title_fontsize=9)
    grid[0].set_ylabel("share of the items")
    return render(
        figure,
        name,
        f"How often an item is among the {K} nearest of a query (criterion nns, all seeds pooled); a tail to the right "
        f"is hubs, the legend gives the share that no query finds.",
    )


@matplotlib.rc_context(RC)
def overview(rows: pd.DataFrame, title_styles: dict[str, dict], name: str) -> Picture:
    """Plot of rsum of each loss, plain and under each criterion. rows: `results.intervals` of one setting."""
    losses = [title for title in title_styles if title in set(rows["series"])]
    criteria = sorted(set(rows["criterion"]), key=lambda criterion: (criterion != "nns", criterion))
    colours = ranking_colours(criteria)
    step = 0.8 / len(criteria)
    figure = new_figure(9.4, 1.1 + len(losses) * max(0.42, 0.17 * len(criteria)))
    axes = figure.add_subplot()
    for number, criterion in enumerate(criteria):
        shown = rows[rows["criterion"] == criterion]
        colour = colours[criterion]
        heights = [losses.index(title) + (number - (len(criteria) - 1) / 2) * step for title in shown["series"]]
        axes.hlines(heights, shown["low"], shown["high"], color=colour, linewidth=4, alpha=0.35)
        axes.hlines(heights, shown["least"], shown["most"], color=colour, linewidth=1.2)
        marker = MARKERS[number % len(MARKERS)]
        axes.plot(shown["rsum"], heights, marker, color=colour, markersize=6, label=literal_text(criterion))
    marks = dict(zip(rows["series"], rows["mark"], strict=True))
    axes.set_yticks(range(len(losses)), [f"{literal_text(title)}{marks[title]}" for title in losses])
    axes.set_ylim(len(losses) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    for edge in np.arange(0.5, len(losses) - 1):
        axes.axhline(edge, color="#c8c8c8", linewidth=0.8)
    axes.set_xlabel("rsum")
    figure.legend(loc="outside upper left", ncols=6)
    seeds = ", thin lines: lowest to highest seed." if rows["seeds"].max() > 1 else "; one seed."
    return render(figure, name, f"rsum of each loss, plain (nns) and corrected; bars: 95 % over test images{seeds}")
