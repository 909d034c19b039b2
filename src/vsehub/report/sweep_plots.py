"""The figures of sweeps and of tuned criteria, and their part of the page."""

from collections.abc import Sequence

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vsehub.report.pages.study import Grid, Part
from vsehub.report.plots import NARROW, RC, Picture, is_narrow, new_figure, plain, render, styles
from vsehub.report.recipes import Series
from vsehub.report.runs import Run
from vsehub.report.sweeps import (
    Sweep,
    Tuning,
    choice_sentences,
    find_sweeps,
    find_tunings,
    matrix,
    setting_rows,
    slices,
    tuning_rows,
    tuning_sentences,
)
from vsehub.report.tables import DIRECTIONS

WIDE_RANGE = 20  # largest over smallest from which an axis is logarithmic
COLOUR = {"val": "#0072B2", "test": "#E69F00"}


def sweep_parts(runs: Sequence[Run], frame: pd.DataFrame) -> list[Part]:
    """The page's sections of the sweeps among the runs, and of the criteria tuned among the evaluations `frame`."""
    with matplotlib.rc_context(RC):
        swept = [_swept(sweep, f"sweep-{number}") for number, sweep in enumerate(find_sweeps(runs), 1)]
        tuned = [_tuned(tuning, f"tuning-{number}") for number, tuning in enumerate(find_tunings(frame), 1)]
    return swept + tuned


def _swept(sweep: Sweep, name: str) -> Part:
    head, rows = setting_rows(sweep)
    grid = Grid(
        "All settings, best on validation first: mean ± sample standard deviation over the seeds.", head, rows, 0
    )
    pictures = [heat_map(sweep, f"{name}-heat")] if sweep.grid and len(sweep.keys) == 2 else []
    pictures.append(lines(sweep, f"{name}-slices") if sweep.grid else points(sweep, f"{name}-points"))
    return Part(f"Sweep of {', '.join(sweep.keys)}: {sweep.title}", choice_sentences(sweep), [grid], pictures)


def _tuned(tuning: Tuning, name: str) -> Part:
    head, rows = tuning_rows(tuning)
    grid = Grid("All values, measured on validation; on test where that was asked for.", head, rows)
    heading = f"{tuning.parameter} chosen on validation: {tuning.title}"
    return Part(heading, tuning_sentences(tuning), [grid], [tuned_lines(tuning, name)])


def heat_map(sweep: Sweep, name: str) -> Picture:
    """Validation rsum over the two settings; a cell without a run is hatched, the chosen one framed."""
    means = matrix(sweep)
    caption = (
        f"Validation rsum over {sweep.keys[0]} and {sweep.keys[1]}, mean over the seeds. Framed: the best, "
        "which is chosen. Hatched: no finished run."
    )
    height = 1.5 + 0.42 * len(means)
    wide, narrow = (_heat_map(sweep, means, new_figure(width, height)) for width in (9.4, NARROW))
    return render(wide, name, caption, None, narrow)


def _heat_map(sweep: Sweep, means: pd.DataFrame, figure: Figure) -> Figure:
    axes, values = figure.add_subplot(), means.to_numpy()
    image = axes.imshow(values, cmap="Blues", aspect="auto", origin="lower")
    axes.grid(False)
    light = np.nanmin(values) + 0.6 * (np.nanmax(values) - np.nanmin(values))
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        if np.isnan(value):
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor="#f2f2f2", edgecolor="#aaaaaa", hatch="///", linewidth=0))
        colour = "white" if value > light else "black"
        size = 8 if is_narrow(figure) else 10
        axes.text(
            column, row, "–" if np.isnan(value) else f"{value:.1f}", ha="center", va="center", color=colour, size=size
        )
    best = sweep.table.iloc[0]
    place = means.columns.get_loc(best[sweep.keys[0]]), means.index.get_loc(best[sweep.keys[1]])
    axes.add_patch(Rectangle((place[0] - 0.5, place[1] - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
    axes.set_xticks(range(values.shape[1]), [f"{value:g}" for value in means.columns])
    axes.set_yticks(range(values.shape[0]), [f"{value:g}" for value in means.index])
    axes.set(xlabel=plain(sweep.keys[0]), ylabel=plain(sweep.keys[1]))
    if not is_narrow(figure):
        figure.colorbar(image, ax=axes, label="validation rsum")
    return figure


def lines(sweep: Sweep, name: str) -> Picture:
    """Validation and test rsum over each setting, the others held at the chosen values."""
    several = len(sweep.keys) > 1
    caption = (
        f"rsum over {' and over '.join(sweep.keys)}"
        + (", the other settings held at the chosen values" if several else "")
        + ": mean over the seeds; the band is ± one sample standard deviation. Dotted: what validation chooses."
    )
    wide, narrow = (_lines(sweep, new_figure(*size)) for size in _sizes(len(sweep.keys)))
    return render(wide, name, caption, None, narrow)


def _lines(sweep: Sweep, figure: Figure) -> Figure:
    for axes, (key, rows) in zip(_panels(figure, len(sweep.keys)), slices(sweep).items(), strict=True):
        for figure_name, words in (("val", "validation"), ("test", "test")):
            style = {"color": COLOUR[figure_name], "marker": "os"[figure_name == "test"]}
            _line(axes, rows[key], rows[figure_name], rows[f"{figure_name} std"], words, style)
        axes.axvline(sweep.table.iloc[0][key], color="#888888", linestyle=":", linewidth=1.2)
        _scale(axes, rows[key])
        axes.set(xlabel=plain(key), ylabel="rsum")
    figure.axes[0].legend()
    return figure


def _line(axes: Axes, x: pd.Series, mean: pd.Series, std: pd.Series, label: str, style: dict) -> None:
    axes.plot(x, mean, label=label, markersize=4.5, linewidth=1.8, **style)
    axes.fill_between(x, mean - std.fillna(0), mean + std.fillna(0), color=style["color"], alpha=0.16, lw=0)


def points(sweep: Sweep, name: str) -> Picture:
    """Validation rsum of each setting over each of its values, for a search whose points share none."""
    caption = "Validation rsum of every setting that was tried, over each of its values. Ringed: the chosen one."
    wide, narrow = (_points(sweep, new_figure(*size)) for size in _sizes(len(sweep.keys)))
    return render(wide, name, caption, None, narrow)


def _points(sweep: Sweep, figure: Figure) -> Figure:
    for axes, key in zip(_panels(figure, len(sweep.keys)), sweep.keys, strict=True):
        axes.plot(sweep.table[key], sweep.table["val"], "o", color=COLOUR["val"], markersize=4.5)
        best = sweep.table.iloc[0]
        axes.plot(best[key], best["val"], "o", markersize=11, mfc="none", mec="#D55E00", mew=2)
        _scale(axes, sweep.table[key])
        axes.set(xlabel=plain(key), ylabel="validation rsum")
    return figure


def tuned_lines(tuning: Tuning, name: str) -> Picture:
    """R@10 on validation over the parameter, by direction, a line a loss."""
    caption = (
        f"Validation R@10 over {tuning.parameter} of {tuning.criterion}: mean over the runs; the band is ± one sample "
        "standard deviation."
    )
    wide, narrow = (_tuned_lines(tuning, new_figure(*size)) for size in _sizes(2))
    return render(wide, name, caption, None, narrow)


def _tuned_lines(tuning: Tuning, figure: Figure) -> Figure:
    groups = {
        Series(tuning.dataset, tuning.architecture, label, variant): rows
        for (label, variant), rows in tuning.table.groupby(["label", "variant"], sort=False)
    }
    look = styles(groups)
    for axes, (side, heading) in zip(_panels(figure, 2), DIRECTIONS.items(), strict=True):
        for series, rows in groups.items():
            key = f"{side}/r10"
            _line(axes, rows["value"], rows[key], rows[f"{key} std"], plain(series.title), look[series.title])
        _scale(axes, tuning.table["value"])
        axes.set(xlabel=plain(tuning.parameter), ylabel="R@10 (%)", title=heading)
    figure.axes[0].legend()
    return figure


def _sizes(panels: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Width and height in inches, on a desk and on a phone."""
    return (9.4, 3.6 * -(-panels // 2)), (NARROW, 3.2 * panels)


def _panels(figure: Figure, number: int) -> list[Axes]:
    """That many axes: in two columns, or on a phone one above the other."""
    columns = 1 if is_narrow(figure) else min(number, 2)
    return [figure.add_subplot(-(-number // columns), columns, place + 1) for place in range(number)]


def _scale(axes: Axes, values: pd.Series) -> None:
    """Logarithmic for positive values of a wide range."""
    if values.min() > 0 and values.max() / values.min() >= WIDE_RANGE:
        axes.set_xscale("log")
