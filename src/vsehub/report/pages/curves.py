"""The plot of k-occurrences before and after corrections, which a page's template draws."""

import math
from collections.abc import Callable, Mapping

import numpy as np

from vsehub.report.pages.templates import render_page
from vsehub.report.pictures import CORRECTED, Picture, ranking_colours

DASHES = ("none", "6 3", "1.5 2.5", "6 3 1.5 3")


def occurrence_curves(histograms: Mapping[str, dict], k: int, fair: float) -> Picture:
    """Plot of the share of items that at least N queries have among their k nearest, log-log, one line per ranking.

    histograms: ranking -> {"occurrences", "items"}, as `metrics.occurrences.histogram` gives it. fair: the mean N_k.
    """
    caption = (
        f"Share of the items that are among the {k} nearest of at least N queries; the dot is the largest hub, the "
        f"fair share {fair_share_text(fair)}, the legend gives the share that no query finds."
    )
    steps = {name: cumulated_shares(histogram) for name, histogram in histograms.items()}
    most = 1.15 * max(counts[-1] for counts, _, _ in steps.values())
    least = min(shares[-1] for _, shares, _ in steps.values()) / 1.3
    x, y = logarithmic(0.9, most, 62, 398), logarithmic(least, 1.3, 262, 10)
    colours = ranking_colours(list(histograms))
    curves = [
        {
            "label": f"{name}: {100 * never:.1f} % never",
            "colour": colours[name],
            "dashes": DASHES[max(0, number - 1) // len(CORRECTED) % len(DASHES)],
            "path": "".join(f"V{y(share):.1f}H{x(count):.1f}" for count, share in zip(counts, shares, strict=True)),
            "start": y(shares[0]),
            "end": (x(counts[-1]), y(shares[-1])),
        }
        for number, (name, (counts, shares, never)) in enumerate(steps.items())
    ]
    svg = render_page(
        "curves.svg.j2",
        curves=curves,
        columns=2 if max(len(str(curve["label"])) for curve in curves) <= 20 else 1,
        start=x(1),
        counts=[(x(count), f"{count:,.0f}") for count in ticks(0.9, most)],
        shares=[(y(share), f"{100 * share:g} %") for share in ticks(least, 1.3)],
        fair=x(fair) if fair >= 1 else None,
    )
    return Picture(f"occurrences-{k}", caption, b"", svg.encode())


def logarithmic(low: float, high: float, first: float, last: float) -> Callable[[float], float]:
    """The map of a logarithmic axis from `low` to `high` onto the coordinates from `first` to `last`."""
    return lambda value: first + (last - first) * math.log(value / low) / math.log(high / low)


def ticks(low: float, high: float) -> list[float]:
    """The values 1, 2, 5, 10, ... between two values or, over more than two decades, the powers of ten."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)))
    steps = (1, 2, 5) if high / low < 200 else (1,)
    return [tick for power in powers for step in steps if low <= (tick := step * 10.0**power) <= high]


def cumulated_shares(histogram: dict) -> tuple[np.ndarray, np.ndarray, float]:
    """Distinct counts above 0, ascending; the share of items with at least each count; the share of items with 0."""
    occurrences, items = (np.asarray(histogram[key], dtype=float) for key in ("occurrences", "items"))
    above = items[::-1].cumsum()[::-1] / items.sum()
    positive = occurrences > 0
    return occurrences[positive], above[positive], float(items[~positive].sum() / items.sum())


def fair_share_text(fair: float) -> str:
    """The fair share, a mean count, as text: "25", "2.5", "0.031"."""
    return f"{fair:,.0f}" if fair >= 10 or fair == round(fair) else f"{fair:.2g}"
