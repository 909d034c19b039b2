"""Fonts, colours and rendering of all plots, and the plot of k-occurrences before and after corrections."""

import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

# Okabe and Ito's colours, distinct for colour-blind readers; without yellow, which is too faint on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
LINES = ("-", "--", ":", "-.")
DPI = 160
RC: dict[Any, Any] = {  # newer versions of matplotlib annotate each key
    "font.family": "DejaVu Sans",
    "font.size": 10.5,
    "axes.titlesize": 11.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#555555",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e3e3e3",
    "legend.frameon": False,
    "svg.hashsalt": "vsehub",
    "savefig.facecolor": "white",
}


@dataclass(frozen=True)
class Picture:
    """A plot: file stem, caption, and its renderings."""

    name: str
    caption: str
    png: bytes
    svg: bytes


def plain(text: str) -> str:
    """Text that matplotlib draws literally: without mathematics, and not hidden for a leading underscore."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches with automatic layout. Call it inside `rc_context(RC)`."""
    return Figure(figsize=(width, height), layout="constrained")


def render(figure: Figure, name: str, caption: str, raster: bool = True) -> Picture:
    """The figure as PNG (if `raster`) and SVG, with equal bytes for equal data. Call it inside `rc_context(RC)`."""
    png, svg = io.BytesIO(), io.BytesIO()
    if raster:
        figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(name, caption, png.getvalue(), svg.getvalue())


PLAIN_COLOUR = "#6f7780"  # visible on white and on black
CORRECTED = tuple(colour for colour in COLOURS if colour != "#000000")


def ranking_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each ranking, for plots and bars; grey for the plain ranking, which comes first."""
    return {
        name: CORRECTED[(number - 1) % len(CORRECTED)] if number else PLAIN_COLOUR for number, name in enumerate(names)
    }


def occurrence_curves(histograms: Mapping[str, dict], k: int, fair: float) -> Picture:
    """Plot of the share of items among the k nearest of at least N queries, log-log, one line per ranking.

    histograms: ranking -> {"occurrences", "items"}, as `metrics.occurrences.histogram` gives it. fair: the mean N_k.
    """
    caption = (
        f"Share of the items that are among the {k} nearest of at least N queries; the dot is the largest hub, the "
        f"fair share {share_text(fair)}, the legend gives the share that no query finds."
    )
    colours = ranking_colours(list(histograms))
    with matplotlib.rc_context(RC):
        figure = new_figure(4.3, 3.7 + 0.2 * max(0, math.ceil(len(histograms) / 2) - 6))
        axes = figure.add_subplot()
        for number, (name, histogram) in reversed(list(enumerate(histograms.items()))):
            occurrences, shares, never = at_least(histogram)
            axes.plot(
                occurrences,
                shares,
                label=f"{plain(name)}: {100 * never:.1f} % never",
                drawstyle="steps-pre",
                color=colours[name],
                linestyle=LINES[max(0, number - 1) // len(CORRECTED) % len(LINES)],
                linewidth=2.6 if number == 0 else 1.7,
            )
            axes.plot(occurrences[-1:], shares[-1:], "o", color=colours[name], markersize=5)
        if fair >= 1:
            axes.axvline(fair, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(
                "fair share",
                (fair, 1),
                (4, -11),
                xycoords=("data", "axes fraction"),
                textcoords="offset points",
            )
        axes.set(xscale="log", yscale="log", xlim=(0.9, None), ylim=(None, 1.3))
        axes.set(xlabel="$N$: queries that find the item", ylabel="items found by at least $N$")
        label_counts(axes)
        axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
        axes.yaxis.set_minor_formatter(NullFormatter())
        handles, labels = axes.get_legend_handles_labels()
        narrow = {"ncols": 2, "fontsize": 9, "columnspacing": 0.7, "handlelength": 1.2}
        figure.legend(handles[::-1], labels[::-1], loc="outside lower center", **narrow)
        return render(figure, f"occurrences-{k}", caption, raster=False)


def label_counts(axes: Axes) -> None:
    """Label a logarithmic axis of counts at 1, 2, 5, 10, ... or, over more than two decades, at powers of ten.

    matplotlib would label every tick of an axis of about a decade, one over the other.
    """
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / max(low, 0.5) > 200 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count >= 1 else "")
    axes.xaxis.set_minor_formatter(NullFormatter())


def at_least(histogram: dict) -> tuple[np.ndarray, np.ndarray, float]:
    """Distinct counts above 0, ascending; the share of items with at least each count; the share of items with 0."""
    occurrences, items = (np.asarray(histogram[key], dtype=float) for key in ("occurrences", "items"))
    above = items[::-1].cumsum()[::-1] / items.sum()
    positive = occurrences > 0
    return occurrences[positive], above[positive], float(items[~positive].sum() / items.sum())


def share_text(fair: float) -> str:
    """A mean count as text: "25", "2.5", "0.031"."""
    return f"{fair:,.0f}" if fair >= 10 or fair == round(fair) else f"{fair:.2g}"
