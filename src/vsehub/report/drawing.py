"""What all figures of a report share: fonts, one colour a loss, and rendering to bytes that do not change."""

import io
from collections.abc import Iterable
from dataclasses import dataclass

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vsehub.report.recipes import LABEL_ORDER, Series, label_rank
from vsehub.report.tables import Setting

# Okabe and Ito's colours, told apart by colour-blind readers; yellow, too faint on white, is left out.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
LINES = ("-", "--", ":", "-.")
DPI = 160
NARROW = 4.2  # inches: on a screen of 360 pixels its text is as large as the page's small type
RC = {
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
    """A drawn figure: file stem, caption, the setting it belongs to (None: training), and its renderings.

    narrow: as SVG, drawn anew for the width of a phone; None where the figure has one form.
    """

    name: str
    caption: str
    setting: Setting | None
    png: bytes
    svg: bytes
    narrow: bytes | None = None


def styles(series: Iterable[Series]) -> dict[str, dict]:
    """Colour and marker of each loss, line of each variant, by the series' title: the same in every figure.

    Markers differ as colours do, for print in black and white. The papers' losses keep their look in every report;
    others take the colours that are left.
    """
    variants: dict[str, set[str]] = {}
    for one in series:
        variants.setdefault(one.label, set()).add(one.variant)
    taken = {LABEL_ORDER.index(label) for label in variants if label in LABEL_ORDER}
    left = [n for n in range(len(COLOURS)) if n not in taken]
    free, round_one = (left, 0) if left else (list(range(len(COLOURS))), 1)  # no colour left: its second marker
    others = sorted(set(variants) - set(LABEL_ORDER))
    return {
        Series("", "", label, variant).title: _style(
            LABEL_ORDER.index(label) if label in LABEL_ORDER else free[others.index(label) % len(free)],
            number + (0 if label in LABEL_ORDER else round_one + others.index(label) // len(free)),
        )
        for label in sorted(variants, key=label_rank)
        for number, variant in enumerate(sorted(variants[label]))
    }


def _style(colour: int, number: int) -> dict:
    return {
        "color": COLOURS[colour],
        "marker": MARKERS[(colour + number) % len(MARKERS)],
        "linestyle": LINES[number % len(LINES)],
    }


def plain(text: str) -> str:
    """Text that matplotlib draws as it is: no mathematics, no label hidden for its leading underscore."""
    text = text.replace("$", r"\$")
    return f"\u200b{text}" if text.startswith("_") else text


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of `width` x `height` inches that lays itself out. Call it inside `rc_context(RC)`."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def is_narrow(figure: Figure) -> bool:
    """Whether the figure is for a phone: its parts stand one above the other."""
    return figure.get_figwidth() <= NARROW


def render(figure: Figure, name: str, caption: str, setting: Setting | None, narrow: Figure | None = None) -> Picture:
    """The figure as PNG and SVG bytes, the same bytes for the same data. Call it inside `rc_context(RC)`.

    narrow: the figure drawn `NARROW` inches wide, for pages on a phone.
    """
    png = io.BytesIO()
    figure.savefig(png, format="png", dpi=DPI, metadata={"Software": None})
    return Picture(name, caption, setting, png.getvalue(), _svg(figure), None if narrow is None else _svg(narrow))


def _svg(figure: Figure) -> bytes:
    content = io.BytesIO()
    figure.savefig(content, format="svg", metadata={"Date": None, "Creator": None})
    return content.getvalue()
