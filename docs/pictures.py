"""Draw docs/images/hubness.png from a result of `vsehub diagnose`, or photograph the page of `vsehub serve`.

make demo-embeddings && python docs/pictures.py runs/embeddings/diagnose/result.json
make demo-page       && python docs/pictures.py http://127.0.0.1:8000        while it runs; needs Chromium
"""

import json
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image

from vsehub.report.plots import COLOURS, PLAIN_COLOUR, RC, new_figure

IMAGES = Path(__file__).parent / "images"
PAGE = "/?query=700&criterion=is&k=5"  # a caption whose picture the plain ranking puts behind hubs


def draw_hubness(result: dict, criterion: str = "is") -> None:
    """Draw the distribution of N_10 under the plain and a corrected ranking."""
    rankings = {ranking["criterion"]: ranking for ranking in result["rankings"]}
    with matplotlib.rc_context(RC):
        figure = new_figure(7.2, 3.2)
        axes = figure.add_subplot()
        for name, label, colour in (
            ("nns", "plain", PLAIN_COLOUR),
            (criterion, f"corrected ({criterion})", COLOURS[0]),
        ):
            histogram = rankings[name]["histograms"]["10"]
            edges = np.arange(0, 251, 10)
            counts, _ = np.histogram(histogram["occurrences"], edges, weights=histogram["items"])
            axes.stairs(counts, edges, fill=True, alpha=0.55, color=colour, label=label)
            largest = max(histogram["occurrences"])
            arrow = {"arrowstyle": "->", "color": colour}
            axes.annotate(
                f"largest hub: {largest}", (largest, 5), (largest - 8, 90), color=colour, ha="center", arrowprops=arrow
            )
        axes.axvline(50, color="black", linewidth=1, linestyle="--", label="fair share")
        axes.set(xlabel="$N_{10}$: queries that have the item among their ten nearest", ylabel="items", xlim=(0, 250))
        axes.legend()
        figure.savefig(IMAGES / "hubness.png", dpi=140)


def photograph(url: str) -> None:
    """Save the page of a search as a picture of 256 colours."""
    target = IMAGES / "serve.png"
    settings = ("--headless", "--no-sandbox", "--hide-scrollbars", "--window-size=1100,1060", f"--screenshot={target}")
    subprocess.run(["chromium", *settings, url + PAGE], check=True)
    Image.open(target).convert("RGB").quantize(256).save(target, optimize=True)


if __name__ == "__main__":
    source = sys.argv[1]
    if source.startswith("http"):
        photograph(source)
    else:
        draw_hubness(json.loads(Path(source).read_text()))
