"""A plot as a file, and the colours, markers and lines of all plots. matplotlib is not imported here."""

from collections.abc import Sequence
from dataclasses import dataclass

# Okabe and Ito's colours, distinct for colour-blind readers; without yellow, which is too faint on white.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000")
MARKERS = "osD^vPX"
LINE_STYLES = ("-", "--", ":", "-.")
PLAIN_COLOUR = "#6f7780"  # visible on white and on black
CORRECTED = tuple(colour for colour in COLOURS if colour != "#000000")


@dataclass(frozen=True)
class Picture:
    """A plot: file stem, caption, and its renderings."""

    name: str
    caption: str
    png: bytes
    svg: bytes


def ranking_colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each ranking, for plots and bars; grey for the plain ranking, which comes first."""
    return {
        name: CORRECTED[(number - 1) % len(CORRECTED)] if number else PLAIN_COLOUR for number, name in enumerate(names)
    }
