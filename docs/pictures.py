"""Draw docs/images/hubness.png from a result of `vsehub diagnose`, or photograph a page as docs/images/NAME.png.

make demo-embeddings && python docs/pictures.py runs/embeddings/diagnose/result.json
make demo-page       && python docs/pictures.py http://127.0.0.1:8000        while it runs
vsehub diagnose ...  && python docs/pictures.py diagnose/index.html lists         photographs need Chromium
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import matplotlib
import numpy as np
from PIL import Image

from vsehub.report.pictures import COLOURS, PLAIN_COLOUR
from vsehub.report.plots import RC, new_figure

IMAGES = Path(__file__).parent / "images"
PAGE = "/?query=700&criterion=is&k=5"  # a caption whose picture the plain ranking puts behind hubs


def draw_hubness(result: dict, criterion: str = "csls", most: int = 8) -> None:
    """Draw how many queries find each of the largest hubs among their ten nearest, plain and corrected."""
    corrected = [ranking["criterion"] for ranking in result["rankings"]].index(criterion)
    hubs = result["hubs"][:most]
    names = [textwrap.shorten(hub["label"], 48, placeholder=" ...") for hub in hubs]
    rows = np.arange(len(hubs))
    with matplotlib.rc_context(RC):
        figure = new_figure(8.2, 3.4)
        axes = figure.add_subplot()
        for number, shift, label, colour in (
            (0, -0.2, "plain search", PLAIN_COLOUR),
            (corrected, 0.2, f"corrected ({criterion})", COLOURS[0]),
        ):
            bars = axes.barh(rows + shift, [hub["occurrences"][number] for hub in hubs], 0.4, label=label, color=colour)
            axes.bar_label(bars, padding=2)
        counts, queries = hubs[0]["occurrences"], result["queries"]["rows"]
        title = f"The largest hub: found by {counts[0]} of {queries} queries. Corrected: by {counts[corrected]}."
        figure.suptitle(title, x=0.01, horizontalalignment="left", fontweight="bold")
        axes.set(xlabel="queries that have the sentence among their ten nearest")
        axes.set_yticks(rows, names)
        axes.invert_yaxis()
        axes.legend()
        figure.savefig(IMAGES / "hubness.png", dpi=140)


def photograph(url: str, name: str, size: str) -> None:
    """Save the top of a page as a picture of 256 colours. size: width and height in pixels."""
    target = IMAGES / f"{name}.png"
    settings = ("--headless", "--no-sandbox", "--hide-scrollbars", f"--window-size={size}", f"--screenshot={target}")
    subprocess.run(["chromium", *settings, url], check=True)
    Image.open(target).convert("RGB").quantize(256).save(target, optimize=True)


if __name__ == "__main__":
    source = sys.argv[1]
    if source.startswith("http"):
        photograph(source + PAGE, "serve", "1100,1060")
    elif source.endswith(".html"):
        photograph(Path(source).resolve().as_uri(), sys.argv[2], "900,790")
    else:
        draw_hubness(json.loads(Path(source).read_text()))
