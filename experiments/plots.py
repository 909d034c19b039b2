"""Dot plots with deviations, as the studies draw them, and figures written to a study's folder."""

from pathlib import Path

import matplotlib
import pandas as pd

from vsehub.io.files import atomic
from vsehub.report.plots import COLOURS, MARKERS, RC, Picture, new_figure, plain, render


def dots(frame: pd.DataFrame, value: str, case: str, panel: str, name: str, caption: str, label: str) -> Picture:
    """Mean and sample deviation over seeds of `value` for each `case`, one panel a `panel`; single runs as faint dots.

    Cases and panels come in the order in which the frame has them; a case looks the same in every panel.
    """
    looks = {one: place for place, one in enumerate(dict.fromkeys(frame[case]))}
    panels = list(dict.fromkeys(frame[panel]))
    counts = [frame.loc[frame[panel] == one, case].nunique() for one in panels]
    with matplotlib.rc_context(RC):
        figure = new_figure(7.5, 0.5 + 0.8 * len(panels) + 0.27 * sum(counts))
        grid = figure.subplots(len(panels), 1, squeeze=False, height_ratios=[one + 0.6 for one in counts])
        for axes, title in zip(grid[:, 0], panels, strict=True):
            rows = frame[frame[panel] == title]
            for place, (one, runs) in enumerate(rows.groupby(case, sort=False)):
                look = {"color": COLOURS[looks[one] % len(COLOURS)], "marker": MARKERS[looks[one] % len(MARKERS)]}
                axes.plot(runs[value], [place] * len(runs), linestyle="none", alpha=0.35, markersize=4, **look)
                axes.errorbar(runs[value].mean(), place, xerr=runs[value].std() if len(runs) > 1 else None, **look)
                axes.annotate(
                    plain(str(one)), (0, place), xycoords=("axes fraction", "data"), xytext=(-6, 0),
                    textcoords="offset points", ha="right", va="center",
                )  # fmt: skip
            axes.set(title=plain(str(title)), yticks=[], ylim=(rows[case].nunique() - 0.4, -0.6))
        grid[-1, 0].set_xlabel(label)
        return render(figure, name, caption, None)


def save(folder: Path, *pictures: Picture) -> None:
    """Write the figures' PNG files into `folder`/figures."""
    for picture in pictures:
        with atomic(folder / "figures" / f"{picture.name}.png") as handle:
            handle.write(picture.png)
