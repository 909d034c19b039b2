"""One figure of how often items are found, before and after corrections."""

from collections.abc import Mapping, Sequence

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from vsehub.report.drawing import COLOURS, LINES, NARROW, RC, Picture, is_narrow, new_figure, plain, render

PLAIN_COLOUR = "#6f7780"  # seen on white and on black
CORRECTED = tuple(colour for colour in COLOURS if colour != "#000000")


def ranking_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each ranking, the plain one, which comes first, in grey; the same in figures and bars."""
    return {
        name: CORRECTED[(number - 1) % len(CORRECTED)] if number else PLAIN_COLOUR for number, name in enumerate(names)
    }


def occurrence_curves(histograms: Mapping[str, dict], k: int, fair: float) -> Picture:
    """Share of the items that are among the k nearest of at least N queries, a line a ranking, in log-log.

    histograms: ranking -> {"occurrences", "items"}, as `metrics.hubness.histogram` gives it. fair: the mean N_k.
    """
    caption = (
        f"How unevenly items are found: the share of items that are among the {k} nearest of at least N queries. "
        f"A line that reaches far to the right is hubs; a dot marks the largest. Were all items found equally "
        f"often, each would be found by {share_text(fair)} queries. The legend gives the share that no query finds."
    )
    with matplotlib.rc_context(RC):
        wide, narrow = (_curves(histograms, k, fair, new_figure(*size)) for size in ((6.4, 4.3), (NARROW, 4.3)))
        return render(wide, f"occurrences-{k}", caption, None, narrow)


def _curves(histograms: Mapping[str, dict], k: int, fair: float, figure: Figure) -> Figure:
    colours = ranking_colours(list(histograms))
    axes = figure.add_subplot()
    for number, (name, histogram) in reversed(list(enumerate(histograms.items()))):
        occurrences, shares, never = at_least(histogram)
        line = LINES[max(0, number - 1) // len(CORRECTED) % len(LINES)]
        axes.plot(
            occurrences,
            shares,
            label=f"{plain(name)}: {100 * never:.1f} % never",
            drawstyle="steps-pre",
            color=colours[name],
            linestyle=line,
            linewidth=2.6 if number == 0 else 1.7,
        )
        axes.plot(occurrences[-1:], shares[-1:], "o", color=colours[name], markersize=5)
    if fair >= 1:
        axes.axvline(fair, color="#555555", linewidth=1, linestyle=(0, (2, 2)))
        axes.annotate("fair share", (fair, 1), (4, -11), xycoords=("data", "axes fraction"), textcoords="offset points")
    axes.set(xscale="log", yscale="log", ylabel="items found by at least $N$")
    found = "$N$: queries that find it" if is_narrow(figure) else "$N$: queries that find the item"
    axes.set_xlabel(f"{found} among their {k} nearest")
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count >= 1 else "")
    axes.yaxis.set_major_formatter(lambda share, _: f"{100 * share:g} %")
    handles, labels = axes.get_legend_handles_labels()
    columns, size = (1, None) if is_narrow(figure) else (2, 9)
    figure.legend(handles[::-1], labels[::-1], loc="outside lower center", ncols=columns, fontsize=size)
    return figure


def at_least(histogram: dict) -> tuple[np.ndarray, np.ndarray, float]:
    """Distinct counts above 0, rising; the share of items with at least each; the share of items with 0."""
    occurrences, items = (np.asarray(histogram[key], dtype=float) for key in ("occurrences", "items"))
    above = items[::-1].cumsum()[::-1] / items.sum()
    found = occurrences > 0
    return occurrences[found], above[found], float(items[~found].sum() / items.sum())


def share_text(fair: float) -> str:
    """A mean count as a reader says it: "25", "2.5", "0.031"."""
    return f"{fair:,.0f}" if fair >= 10 or fair == round(fair) else f"{fair:.2g}"
