"""The plots of runs: validation rsum over epochs, k-occurrences in log-log, recalls by criterion."""

import re
from collections.abc import Iterable, Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from vsehub.report.plots import (
    COLOURS,
    LINES,
    MARKERS,
    NARROW,
    RC,
    Picture,
    is_narrow,
    label_counts,
    new_figure,
    plain,
    ranking_colours,
    render,
)
from vsehub.report.recipes import LABEL_ORDER, Series, label_rank, series_rank
from vsehub.report.results import DIRECTIONS, RANKS, Setting, by_setting
from vsehub.report.runs import Run
from vsehub.report.tables import criterion_text

RECALLS = RANKS[:3]
OVERVIEW = "overview"


def styles(series: Iterable[Series]) -> dict[str, dict]:
    """Colour and marker of each loss, line of each variant, by the series' title: the same in every plot.

    Markers differ as well as colours, for black-and-white print. The papers' losses look the same in every report;
    other losses take the remaining colours, and then variants of a loss beyond the first. Where these are too few,
    variants of one of several losses share its colour; those of a single loss take all colours in turn.
    """
    variants: dict[str, set[str]] = {}
    for one in series:
        variants.setdefault(one.label, set()).add(one.variant)
    taken = {LABEL_ORDER.index(label) for label in variants if label in LABEL_ORDER}
    left = [n for n in range(len(COLOURS)) if n not in taken]
    free, round_one = (left, 0) if left else (list(range(len(COLOURS))), 1)  # no colour is left: its second marker
    others = sorted(set(variants) - set(LABEL_ORDER))
    base = {
        label: LABEL_ORDER.index(label) if label in LABEL_ORDER else free[others.index(label) % len(free)]
        for label in variants
    }
    ordered = sorted(variants, key=label_rank)
    beyond = [(label, number) for label in ordered for number in range(1, len(variants[label]))]
    spare = [n for n in range(len(COLOURS)) if n not in base.values()]
    own = dict(zip(beyond, spare, strict=False)) if len(beyond) <= len(spare) else {}
    found = {}
    for label in ordered:
        first = 0 if label in LABEL_ORDER else round_one + others.index(label) // len(free)
        for number, variant in enumerate(sorted(variants[label])):
            if (label, number) in own:
                style = _style(own[label, number], number, 0)
            elif len(variants) == 1 and not own:
                turn = first + number // len(COLOURS)
                style = _style((base[label] + number) % len(COLOURS), turn, turn)
            else:
                style = _style(base[label], first + number, first + number)
            found[Series("", "", label, variant).title] = style
    return found


def _style(colour: int, line: int, marker: int) -> dict:
    """A colour, a kind of line, and the marker so many places after the colour's own."""
    return {
        "color": COLOURS[colour],
        "marker": MARKERS[(colour + marker) % len(MARKERS)],
        "linestyle": LINES[line % len(LINES)],
    }


def draw(runs: Sequence[Run], series: dict[str, Series], table: pd.DataFrame, spread: pd.DataFrame) -> list[Picture]:
    """All plots for which the runs have data; `table` is their aggregated table, `spread` their `intervals`.

    The overview of a setting is the first of its plots.
    """
    look = styles(series.values())
    places = sorted({one[:2] for one in series.values()})
    settings = by_setting(table)
    with matplotlib.rc_context(RC):
        pictures = [curves(runs, series, place, look, _name("rsum-over-epochs", place, places)) for place in places]
        for setting, rows in settings.items():
            own = spread[(spread[list(Setting._fields)] == list(setting)).all(axis=1)]
            if len(own):
                pictures.append(overview(own, setting, list(look), _name(OVERVIEW, setting, list(settings))))
            pictures.append(recalls(rows, setting, look, _name("recalls", setting, list(settings))))
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
    caption = (
        "Validation rsum (sum of the six recalls) after each epoch: mean over the finished runs of each loss (over all "
        "its runs where none finished), band from the lowest to the highest."
    )
    wide, narrow = (_curves(found, place, look, new_figure(*size)) for size in ((9.4, 4.4), (NARROW, 4.6)))
    return render(wide, name, caption, None, narrow)


def _curves(found: dict[Series, dict[str, pd.Series]], place: tuple, look: dict[str, dict], figure: Figure) -> Figure:
    axes = figure.add_subplot()
    for one in sorted(found, key=series_rank):
        seeds = pd.DataFrame(found[one])
        style = look[one.title]
        label = f"{plain(one.title)}, {seeds.shape[1]} run{'s' if seeds.shape[1] > 1 else ''}"
        axes.plot(seeds.index, seeds.mean(axis=1), label=label, markersize=4.5, linewidth=1.8, **style)
        axes.fill_between(seeds.index, seeds.min(axis=1), seeds.max(axis=1), color=style["color"], alpha=0.16, lw=0)
    axes.set(
        xlabel="epoch", ylabel="validation rsum", title=plain((" ·\n" if is_narrow(figure) else " · ").join(place))
    )
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    if is_narrow(figure):
        figure.legend(loc="outside lower left", ncols=2)
    else:
        axes.legend(loc="upper left", bbox_to_anchor=(1, 1))
    return figure


def occurrences(
    runs: Sequence[Run], series: dict[str, Series], setting: Setting, look: dict[str, dict], name: str, k: int = 10
) -> Picture | None:
    """Plot of the share of items among the k nearest of N_k queries, both directions, log-log."""
    pooled = pool_histograms(runs, series, setting, k)
    if not pooled:
        return None
    caption = (
        f"How often an item is among the {k} nearest of a query (criterion nns, all seeds pooled); a tail to the right "
        f"is hubs, the legend gives the share that no query finds."
    )
    wide, narrow = (_occurrences(pooled, look, k, new_figure(*size)) for size in ((9.4, 4.2), (NARROW, 7.4)))
    return render(wide, name, caption, setting, narrow)


def _occurrences(pooled: dict[tuple[Series, str], pd.Series], look: dict[str, dict], k: int, figure: Figure) -> Figure:
    grid = figure.subplots(*((2, 1) if is_narrow(figure) else (1, 2)), sharey=True)
    for axes, (side, heading) in zip(grid, DIRECTIONS.items(), strict=True):
        for one in sorted({one for one, way in pooled if way == side}, key=series_rank):
            shares = pooled[one, side] / pooled[one, side].sum()
            found = shares[shares.index > 0]
            label = f"{plain(one.title)}: {100 * shares.get(0, 0.0):.1f} %"
            style = {key: look[one.title][key] for key in ("color", "marker")}
            axes.plot(found.index, found, linestyle="none", markersize=4.5, alpha=0.75, mew=0, label=label, **style)
        axes.set(xscale="log", yscale="log", title=heading, xlabel=f"$N_{{{k}}}$: queries that find the item")
        label_counts(axes)
        size = None if is_narrow(figure) else 9  # None: that of all text
        axes.legend(title=f"never found ($N_{{{k}}}=0$)", alignment="left", fontsize=size, title_fontsize=size)
    for axes in figure.axes if is_narrow(figure) else figure.axes[:1]:
        axes.set_ylabel("share of the items")
    return figure


def pool_histograms(
    runs: Sequence[Run], series: dict[str, Series], setting: Setting, k: int
) -> dict[tuple[Series, str], pd.Series]:
    """Numbers of items by k-occurrence (index) and (series, direction), summed over a series' runs; criterion nns."""
    pooled: dict[tuple[Series, str], pd.Series] = {}
    for run in runs:
        for evaluation in run.evaluations.values():
            here = (evaluation["split"], evaluation["protocol"], evaluation["criterion"]) == (*setting[2:], "nns")
            if not here or series[run.path][:2] != setting[:2]:
                continue
            for side, histograms in (evaluation.get("histograms") or {}).items():
                if str(k) in histograms:
                    counts = pd.Series(histograms[str(k)]["items"], histograms[str(k)]["occurrences"], dtype=float)
                    key = (series[run.path], side)
                    pooled[key] = pooled[key].add(counts, fill_value=0) if key in pooled else counts
    return pooled


def overview(rows: pd.DataFrame, setting: Setting, order: Sequence[str], name: str) -> Picture:
    """Plot of rsum of each loss, plain and under each criterion. rows: `results.intervals`. order: of the losses."""
    several = rows["seeds"].max() > 1
    caption = "rsum of each loss, plain (nns) and corrected; bars: 95 % over test images"
    caption += ", thin lines: lowest to highest seed." if several else "; one seed."
    wide, narrow = (_overview(rows, order, width) for width in (9.4, NARROW))
    return render(wide, name, caption, setting, narrow)


def _overview(rows: pd.DataFrame, order: Sequence[str], width: float) -> Figure:
    losses = [title for title in order if title in set(rows["series"])]
    criteria = sorted(set(rows["criterion"]), key=lambda one: (one != "nns", one))
    colours = ranking_colours(criteria)
    step = 0.8 / len(criteria)
    figure = new_figure(width, 1.1 + len(losses) * max(0.42, 0.17 * len(criteria)))
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
    figure.legend(loc="outside upper left", ncols=2 if is_narrow(figure) else 6)
    return figure


def recalls(rows: pd.DataFrame, setting: Setting, look: dict[str, dict], name: str) -> Picture:
    """Plot of R@1, R@5 and R@10, both directions, one line per criterion (per loss if there is one criterion)."""
    several = len({_criterion(row) for _, row in rows.iterrows()}) > 1
    caption = "Recalls by criterion" if several else f"Recalls by loss (criterion {_criterion(rows.iloc[0])})"
    caption += ": mean over the seeds; bars show ± one sample standard deviation."
    wide, narrow = (_recalls(rows, look, several, width) for width in (9.4, NARROW))
    return render(wide, name, caption, setting, narrow)


def _recalls(rows: pd.DataFrame, look: dict[str, dict], several: bool, width: float) -> Figure:
    """Three columns of recalls; on a phone, one above the other."""
    criteria = [_criterion(row) for _, row in rows.iterrows()]
    titles = [Series(*row[list(Series._fields)]).title for _, row in rows.iterrows()]
    lines = list(dict.fromkeys(criteria if several else titles))
    losses = [title for title in look if title in titles]
    shape = (6, 1) if width == NARROW else (2, 3)
    height = len(lines) * (0.2 + (0.13 * len(losses) if several else 0.12))
    figure = new_figure(width, 2.2 + 2 * height if shape == (2, 3) else 0.6 + 6 * (0.55 + height))
    grid = figure.subplots(*shape, sharey=True)
    for axes, (side, rank, heading) in zip(
        grid.flat, [(side, *rank) for side in DIRECTIONS for rank in RECALLS], strict=True
    ):
        for (_, row), criterion, title in zip(rows.iterrows(), criteria, titles, strict=True):
            offset = (losses.index(title) - (len(losses) - 1) / 2) * 0.7 / len(losses) if several else 0.0
            height = lines.index(criterion if several else title) + offset
            _recall_point(axes, row, f"{side}/{rank}", height, look[title])
        middle, half = np.mean(axes.get_xlim()), np.ptp(axes.get_xlim()) / 2
        axes.set_xlim(middle - max(half, 1), middle + max(half, 1))  # do not magnify differences below one point
        axes.set_title(f"{DIRECTIONS[side]}, {heading}")
        axes.set_yticks(range(len(lines)), map(plain, lines))
        axes.set_ylim(len(lines) - 0.5, -0.5)
        axes.grid(axis="y", visible=not several)
        for edge in np.arange(0.5, len(lines) - 1) if several else ():
            axes.axhline(edge, color="#c8c8c8", linewidth=0.8)
    for axes in grid.flat[-shape[1] :]:
        axes.set_xlabel("recall (%)")
    if several:
        handles = [
            matplotlib.lines.Line2D(
                [], [], ls="none", label=plain(title), **{k: look[title][k] for k in ("color", "marker")}
            )
            for title in losses
        ]
        columns = 2 if is_narrow(figure) else 6
        figure.legend(handles=handles, loc="outside upper left", ncols=min(len(losses), columns))
    return figure


def _criterion(row: pd.Series) -> str:
    name = criterion_text(row["criterion"], row["parameters"])
    return name if row["reference"] == "none" else f"{name}, {row['reference']}"


def _recall_point(axes: Axes, row: pd.Series, key: str, height: float, style: dict) -> None:
    std = row[f"{key} std"]
    axes.errorbar(
        row[key],
        height,
        xerr=None if pd.isna(std) else std,
        fmt=style["marker"],
        color=style["color"],
        markersize=5.5,
        elinewidth=1.4,
        capsize=2.5,
    )
