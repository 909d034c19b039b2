"""Fonts and rendering of the plots that matplotlib draws."""

import io
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter

from vsehub.report.pictures import Picture

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


def literal_text(text: str) -> str:
    """Text that matplotlib draws literally: without mathematics, and not hidden for a leading underscore."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches with automatic layout. Call it inside `rc_context(RC)`."""
    return Figure(figsize=(width, height), layout="constrained")


def render(figure: Figure, name: str, caption: str) -> Picture:
    """The figure as PNG and SVG, with equal bytes for equal data. Call it inside `rc_context(RC)`."""
    png, svg = io.BytesIO(), io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    figure.savefig(svg, format="svg", metadata={"Date": None, "Creator": None})
    return Picture(name, caption, png.getvalue(), svg.getvalue())


def label_counts(axes: Axes) -> None:
    """Label a logarithmic axis of counts at 1, 2, 5, 10, ... or, over more than two decades, at powers of ten.

    matplotlib would label every tick of an axis of about a decade, one over the other.
    """
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0,) if high / max(low, 0.5) > 200 else (1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}" if count >= 1 else "")
    axes.xaxis.set_minor_formatter(NullFormatter())
