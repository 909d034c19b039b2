"""Sweeps among runs: the settings that were tried, the one that validation chooses, a table and plots.

A sweep consists of the finished runs of one loss whose recipes differ only in numbers.
"""

import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.patches import Rectangle

from vsehub.recipes import flatten
from vsehub.report.pages.sections import Section
from vsehub.report.plots import RC, Picture, new_figure, plain, render
from vsehub.report.recipes import NOISE, label_rank, recipe, variants
from vsehub.report.run_plots import line_with_band
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, seeds_text, spread_text

SPLITS = {"val": "validation", "test": "test"}
WIDE_RANGE = 20  # an axis is logarithmic from this ratio of the largest to the smallest value on
STYLES: dict[str, dict[str, Any]] = {
    "val": {"color": "#0072B2", "marker": "o"},
    "test": {"color": "#E69F00", "marker": "s"},
}
MOST_SETTINGS = 4  # that vary in one sweep; runs that differ in more settings are not one sweep
FEWEST_POINTS = 5  # of a search whose trials share no values


class LossSweep(NamedTuple):
    """The finished runs of one loss whose recipes differ only in numbers.

    title: data set, architecture, loss, and in words the difference from other runs of that loss. keys: the settings
    that vary. table: one row per combination of their values, best on validation first: the keys, n, seeds, val,
    val std, test, test std; rsum, mean and sample standard deviation over the seeds. grid: whether values recur, so
    that one setting can be varied with the others fixed.
    """

    title: str
    keys: list[str]
    table: pd.DataFrame
    grid: bool


def find_sweeps(runs: Sequence[Run]) -> list[LossSweep]:
    """All sweeps among the runs, in the order of the losses; unfinished runs are omitted."""
    groups = defaultdict(list)
    for run in runs:
        if run.finished and (run.record.get("best") or {}).get("val/rsum") is not None:
            groups[run.record["dataset"], run.record["architecture"], run.record["label"]].append(run)
    sweeps = []
    for place in sorted(groups, key=lambda place: (*place[:2], label_rank(place[2]))):
        records = [run.record for run in groups[place]]
        texts = pd.DataFrame(map(settings_of, groups[place])).fillna("absent")
        numbers = texts.apply(pd.to_numeric, errors="coerce")
        numbers = numbers.loc[:, np.isfinite(numbers).all()]
        frame = numbers.assign(
            seed=[record["seed"] for record in records],
            val=[record["best"]["val/rsum"] for record in records],
            test=[(record.get("metrics") or {}).get("test/rsum", math.nan) for record in records],
        )
        words = variants(texts.drop(columns=numbers.columns).to_dict("records"))
        for fixed, rows in frame.groupby(pd.Series(words)):
            keys = _varying(rows, list(numbers.columns))
            if 0 < len(keys) <= MOST_SETTINGS:
                table = _means(rows, keys)
                others = [[other for other in keys if other != key] for key in keys]
                grid = all(not rest or bool(table.duplicated(rest).any()) for rest in others)
                if grid or len(table) >= FEWEST_POINTS:
                    sweeps.append(LossSweep(" · ".join(filter(None, (*place, fixed))), keys, table, grid))
    return sweeps


def settings_of(run: Run) -> dict[str, str]:
    """The recipe of a run, with the noise of its training captions as separate settings."""
    settings = recipe(run)
    asked = flatten(run.record["config"])
    if (run.record.get("noise") or {}).get("index") is None:  # drawn; the noise of a given index stays in words
        del settings[NOISE]
        settings |= {
            "data.noise.rate": str(asked.get("data.noise.rate") or 0.0),
            "data.noise.protocol": str(asked.get("data.noise.protocol")),
        }
    return settings


def _varying(rows: pd.DataFrame, keys: list[str]) -> list[str]:
    """The keys with more than one value; of keys that always vary together, only the shortest."""
    several = [key for key in sorted(keys, key=lambda key: (len(key), key)) if rows[key].nunique() > 1]
    return sorted(rows[several].T.drop_duplicates().index)


def _means(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    columns = {"n": ("seed", "size"), "seeds": ("seed", lambda seeds: ", ".join(map(str, sorted(seeds))))}
    for split in SPLITS:
        columns |= {split: (split, "mean"), f"{split} std": (split, "std")}
    table = rows.groupby(keys, as_index=False).agg(**columns)
    return table.sort_values(["val", *keys], ascending=[False, *[True] * len(keys)], ignore_index=True)


def slices(sweep: LossSweep) -> dict[str, pd.DataFrame]:
    """The rows of each setting at the best validation values of all others, sorted by the setting."""
    best, found = sweep.table.iloc[0], {}
    for key in sweep.keys:
        others = [other for other in sweep.keys if other != key]
        found[key] = sweep.table[(sweep.table[others] == best[others]).all(axis=1)].sort_values(key, ignore_index=True)
    return found


def settings_table(sweep: LossSweep) -> ReportTable:
    """All settings, best on validation first; marked are the chosen one and, if different, the best on test."""
    marks = dict.fromkeys(sweep.table.index, "")
    if sweep.table["test"].notna().any():
        marks[sweep.table["test"].idxmax()] = "best on test, not chosen"
    marks[0] = "chosen"
    rows = [
        [
            *(f"{row[key]:g}" for key in sweep.keys),
            *(spread_text(row[split], row[f"{split} std"], 1) for split in SPLITS),
            seeds_text(row["n"], row["seeds"]),
            marks[number],
        ]
        for number, row in sweep.table.iterrows()
    ]
    head = [*sweep.keys, *(f"{words} rsum" for words in SPLITS.values()), "seeds", ""]
    caption = "All settings, best on validation first: mean ± sample standard deviation over the seeds."
    return ReportTable(head, rows, caption, words=0, notes=2)


def sweep_sections(runs: Sequence[Run]) -> list[Section]:
    """The page's sections of the sweeps among the runs."""
    sections = []
    with matplotlib.rc_context(RC):
        for number, sweep in enumerate(find_sweeps(runs), 1):
            pictures = [heat_map(sweep, f"sweep-{number}-heat")] if sweep.grid and len(sweep.keys) == 2 else []
            pictures.append(curves_over_settings(sweep, f"sweep-{number}-slices"))
            heading = f"Sweep of {', '.join(sweep.keys)}: {sweep.title}"
            sections.append(Section(heading, tables=[settings_table(sweep)], pictures=pictures))
    return sections


def heat_map(sweep: LossSweep, name: str) -> Picture:
    """Plot of validation rsum over two settings; a cell without a run is hatched, the chosen one framed."""
    across, up = sweep.keys
    means = sweep.table.pivot(index=up, columns=across, values="val")
    values, best = means.to_numpy(), sweep.table.iloc[0]
    figure = new_figure(9.4, 1.5 + 0.42 * len(means))
    axes = figure.add_subplot(facecolor="#f2f2f2")
    axes.patch.set(hatch="///", edgecolor="#aaaaaa")
    image = axes.imshow(values, cmap="Blues", aspect="auto", origin="lower")
    axes.grid(False)
    light = np.nanmin(values) + 0.6 * np.ptp(values[np.isfinite(values)])
    for row, column in np.argwhere(np.isfinite(values)):
        value = values[row, column]
        axes.text(column, row, f"{value:.1f}", ha="center", va="center", color="white" if value > light else "black")
    corner = means.columns.get_loc(best[across]) - 0.5, means.index.get_loc(best[up]) - 0.5
    axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
    axes.set_xticks(range(values.shape[1]), [f"{value:g}" for value in means.columns])
    axes.set_yticks(range(values.shape[0]), [f"{value:g}" for value in means.index])
    axes.set(xlabel=plain(across), ylabel=plain(up))
    figure.colorbar(image, ax=axes, label="validation rsum")
    caption = (
        f"Validation rsum over {across} and {up}, mean over the seeds. Framed: the best, which is chosen. Hatched: no "
        "finished run."
    )
    return render(figure, name, caption, None)


def curves_over_settings(sweep: LossSweep, name: str) -> Picture:
    """Plot of rsum over each setting with the others at the chosen values; without a grid, all settings as points."""
    best, rows = sweep.table.iloc[0], -(-len(sweep.keys) // 2)
    figure = new_figure(9.4, 3.6 * rows)
    for number, (key, held) in enumerate(slices(sweep).items(), 1):
        axes = figure.add_subplot(rows, min(len(sweep.keys), 2), number)
        shown = held.set_index(key) if sweep.grid else sweep.table.set_index(key)
        for split, words in SPLITS.items():
            if sweep.grid:
                mean, std = shown[split], shown[f"{split} std"].fillna(0)
                line_with_band(axes, mean, mean - std, mean + std, words, STYLES[split])
            else:
                axes.plot(shown.index, shown[split], linestyle="none", label=words, **STYLES[split])
        axes.axvline(best[key], color="#888888", linestyle=":", linewidth=1.2)
        if shown.index.min() > 0 and shown.index.max() / shown.index.min() >= WIDE_RANGE:
            axes.set_xscale("log")
        axes.set(xlabel=plain(key), ylabel="rsum")
    figure.axes[0].legend()
    caption = f"rsum over {' and over '.join(sweep.keys)}: "
    if not sweep.grid:
        caption += "every setting that was tried. "
    else:
        caption += "mean over the seeds, the other settings at the chosen values; band: ± one standard deviation. "
    return render(figure, name, f"{caption}Dotted: what validation chooses.", None)
