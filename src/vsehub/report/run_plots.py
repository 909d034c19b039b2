"""The plots of runs: validation rsum over epochs, k-occurrences in log-log, rsum by loss and criterion."""

import itertools
import re
from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from vsehub.report.plots import (
    COLOURS,
    LINES,
    MARKERS,
    RC,
    Picture,
    label_counts,
    new_figure,
    plain,
    ranking_colours,
    render,
)
from vsehub.report.recipes import LABEL_ORDER, Series, label_rank, series_rank
from vsehub.report.results import DIRECTIONS, Setting, by_setting
from vsehub.report.runs import Run
from vsehub.report.tables import count_text

OVERVIEW = "overview"


def styles(series: Iterable[Series]) -> dict[str, dict]:
    """Colour, marker and line of each loss and variant, by the series' title: the same in every plot.

    The papers' losses look the same in every report. Other losses, and then further variants of a loss, take the
    colours that are left, if there are too few again with other markers and lines.
    """
    ordered = sorted({(label_rank(one.label), one.variant, one.title, one.label) for one in series})
    titles = [title for _, _, title, _ in ordered]
    first = {label: title for _, _, title, label in reversed(ordered)}  # of each loss
    numbers = {first[label]: number for number, label in enumerate(LABEL_ORDER) if label in first}
    taken = set(numbers.values())
    free = (number for number in itertools.count() if number not in taken)
    for title in sorted(titles, key=lambda title: title not in first.values()):
        if title not in numbers:
            numbers[title] = next(free)
    return {
        title: {
            "color": COLOURS[numbers[title] % len(COLOURS)],
            "marker": MARKERS[(numbers[title] + numbers[title] // len(COLOURS)) % len(MARKERS)],
            "linestyle": LINES[numbers[title] // len(COLOURS) % len(LINES)],
        }
        for title in titles
    }


def draw(runs: Sequence[Run], series: dict[str, Series], table: pd.DataFrame, spread: pd.DataFrame) -> list[Picture]:
    """All plots that the runs have data for; `table` is their aggregated table, `spread` their `intervals`.

    The overview of a setting is the first of its plots.
    """
    look = styles(series.values())
    places = sorted({one[:2] for one in series.values()})
    settings = by_setting(table)
    with matplotlib.rc_context(RC):
        pictures = [curves(runs, series, place, look, _name("rsum-over-epochs", place, places)) for place in places]
        for setting in settings:
            own = spread[(spread[list(Setting._fields)] == list(setting)).all(axis=1)]
            if len(own):
                pictures.append(overview(own, setting, list(look), _name(OVERVIEW, setting, list(settings))))
            pictures.append(occurrences(runs, series, setting, look, _name("occurrences", setting, list(settings))))
    return [picture for picture in pictures if picture]


def _name(stem: str, place: tuple, places: Sequence[tuple]) -> str:
    """A file stem: `stem` if there is only one place, else with the place's number and words."""
    if len(places) == 1:
        return stem
    words = re.sub(r"[^a-z0-9]+", "-", " ".join(place).lower()).strip("-")
    return f"{stem}-{places.index(place) + 1}-{words}"[:120]


def curves(
    runs: Sequence[Run], series: dict[str, Series], place: tuple[str, str], look: dict[str, dict], name: str
) -> Picture | None:
    """Plot of validation rsum over epochs: mean over the seeds, with a band from the lowest to the highest."""
    members = [run for run in runs if series[run.path][:2] == place and {"epoch", "val/rsum"} <= set(run.history)]
    complete = {series[run.path] for run in members if run.finished}
    found: dict[Series, dict[str, pd.Series]] = {}
    for run in members:
        rows = run.history.dropna(subset=["epoch", "val/rsum"])
        if len(rows) and (run.finished or series[run.path] not in complete):
            curve = rows.groupby(rows["epoch"].astype(int))["val/rsum"].last()
            found.setdefault(series[run.path], {})[run.path] = curve
    if not found:
        return None
    figure = new_figure(9.4, 4.4)
    axes = figure.add_subplot()
    for one in sorted(found, key=series_rank):
        seeds = pd.DataFrame(found[one])
        label = f"{plain(one.title)}, {count_text(seeds.shape[1], 'run')}"
        line_with_band(axes, seeds.mean(axis=1), seeds.min(axis=1), seeds.max(axis=1), label, look[one.title])
    axes.set(xlabel="epoch", ylabel="validation rsum", title=plain(" · ".join(place)))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    caption = (
        "Validation rsum (sum of the six recalls) after each epoch: mean over the finished runs of each loss (over all "
        "its runs where none finished), band from the lowest to the highest."
    )
    return render(figure, name, caption, None)


def line_with_band(axes: Axes, mean: pd.Series, low: pd.Series, high: pd.Series, label: str, style: dict) -> None:
    """Plot a mean over its index, with a band from low to high."""
    axes.plot(mean.index, mean, label=label, markersize=4.5, linewidth=1.8, **style)
    axes.fill_between(mean.index, low, high, color=style["color"], alpha=0.16, lw=0)


def occurrences(
    runs: Sequence[Run], series: dict[str, Series], setting: Setting, look: dict[str, dict], name: str, k: int = 10
) -> Picture | None:
    """Plot of the share of items among the k nearest of N_k queries, both directions, log-log."""
    pooled = pool_histograms(runs, series, setting, k)
    if not pooled:
        return None
    figure = new_figure(9.4, max(4.2, 0.2 * len(pooled)))
    grid = figure.subplots(1, 2, sharey=True)
    for axes, (side, heading) in zip(grid, DIRECTIONS.items(), strict=True):
        for one in sorted({one for one, way in pooled if way == side}, key=series_rank):
            shares = pooled[one, side] / pooled[one, side].sum()
            found = shares[shares.index > 0]
            label = f"{plain(one.title)}: {100 * shares.get(0, 0.0):.1f} %"
            style = {key: look[one.title][key] for key in ("color", "marker")}
            axes.plot(found.index, found, linestyle="none", markersize=4.5, alpha=0.75, mew=0, label=label, **style)
        axes.set(xscale="log", yscale="log", title=heading, xlabel=f"$N_{{{k}}}$: queries that find the item")
        label_counts(axes)
        axes.legend(title=f"never found ($N_{{{k}}}=0$)", alignment="left", fontsize=9, title_fontsize=9)
    grid[0].set_ylabel("share of the items")
    caption = (
        f"How often an item is among the {k} nearest of a query (criterion nns, all seeds pooled); a tail to the right "
        f"is hubs, the legend gives the share that no query finds."
    )
    return render(figure, name, caption, setting)


def pool_histograms(
    runs: Sequence[Run], series: dict[str, Series], setting: Setting, k: int
) -> dict[tuple[Series, str], pd.Series]:
    """Numbers of items by k-occurrence (index) and (series, direction), summed over a series' runs; criterion nns."""
    pooled: dict[tuple[Series, str], pd.Series] = {}
    for run in runs:
        for evaluation in run.evaluations.values():
            here = (*series[run.path][:2], *(evaluation[key] for key in ("split", "protocol", "criterion")))
            histograms = evaluation.get("histograms") or {}
            for side in histograms if here == (*setting, "nns") else ():
                if histogram := histograms[side].get(str(k)):
                    counts = pd.Series(histogram["items"], histogram["occurrences"], dtype=float)
                    key = (series[run.path], side)
                    pooled[key] = pooled.get(key, counts * 0).add(counts, fill_value=0)
    return pooled


def overview(rows: pd.DataFrame, setting: Setting, order: Sequence[str], name: str) -> Picture:
    """rsum of each loss, plain and under each criterion. rows: `results.intervals`. order: order of the losses."""
    losses = [title for title in order if title in set(rows["series"])]
    criteria = sorted(set(rows["criterion"]), key=lambda one: (one != "nns", one))
    colours = ranking_colours(criteria)
    step = 0.8 / len(criteria)
    figure = new_figure(9.4, 1.1 + len(losses) * max(0.42, 0.17 * len(criteria)))
    axes = figure.add_subplot()
    for number, criterion in enumerate(criteria):
        own = rows[rows["criterion"] == criterion]
        places = [losses.index(title) + (number - (len(criteria) - 1) / 2) * step for title in own["series"]]
        marker = MARKERS[number % len(MARKERS)]
        axes.hlines(places, own["low"], own["high"], color=colours[criterion], linewidth=4, alpha=0.35)
        axes.hlines(places, own["least"], own["most"], color=colours[criterion], linewidth=1.2)
        axes.plot(own["rsum"], places, marker, color=colours[criterion], markersize=6, label=plain(criterion))
    axes.set_yticks(range(len(losses)), map(plain, losses))
    axes.set_ylim(len(losses) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)
    for edge in np.arange(0.5, len(losses) - 1):
        axes.axhline(edge, color="#c8c8c8", linewidth=0.8)
    axes.set_xlabel("rsum")
    figure.legend(loc="outside upper left", ncols=6)
    caption = "rsum of each loss, plain (nns) and corrected; bars: 95 % over test images"
    caption += ", thin lines: lowest to highest seed." if rows["seeds"].max() > 1 else "; one seed."
    return render(figure, name, caption, setting)
