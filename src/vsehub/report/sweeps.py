"""Sweeps among runs: the settings that were tried, the one that validation chooses, a table and plots.

A sweep consists of the finished runs of one loss whose recipes differ only in numbers.
"""

from collections.abc import Sequence
from typing import Any

import matplotlib
import numpy as np
import pandas as pd

from vsehub.recipes import flatten
from vsehub.report.pictures import Picture
from vsehub.report.plots import RC, literal_text, new_figure, render
from vsehub.report.recipes import NOISE, by_loss, recipe, variants
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, Section, collapsed_text, distinct_seeds, seeds_text, spread_text

SPLITS = {"val": "validation", "test": "test"}
WIDE_RANGE = 20  # an axis is logarithmic from this ratio of the largest to the smallest value on
STYLES: dict[str, dict[str, Any]] = {
    "val": {"color": "#0072B2", "marker": "o"},
    "test": {"color": "#E69F00", "marker": "s"},
}


def sweep_sections(runs: Sequence[Run]) -> list[Section]:
    """The sections of all sweeps among the runs, in the order of the losses; unfinished runs are omitted."""
    sections: list[Section] = []
    done = [run for run in runs if run.finished and (run.record.get("best") or {}).get("val/rsum") is not None]
    for group, members in by_loss(done).items():
        texts = pd.DataFrame(map(settings_of, members)).fillna("absent")
        numbers = texts.apply(pd.to_numeric, errors="coerce")
        numbers = numbers.loc[:, np.isfinite(numbers).all()]
        frame = numbers.assign(
            seed=[run.record["seed"] for run in members],
            val=[run.record["best"]["val/rsum"] for run in members],
            test=[(run.record.get("metrics") or {}).get("test/rsum", np.nan) for run in members],
            collapsed=[bool(run.record.get("collapsed")) for run in members],
        )
        # Runs belong to one sweep if their other settings, which are not numbers, are equal.
        other_settings = variants(texts.drop(columns=numbers.columns).to_dict("records"))
        for fixed, rows in frame.groupby(pd.Series(other_settings)):
            by_length = sorted(numbers, key=lambda key: (len(key), key))
            varied = [key for key in by_length if rows[key].nunique() > 1]
            # Of settings that always vary together, only the one with the shortest name is kept.
            keys = sorted(rows[varied].T.drop_duplicates().index)
            table = means(rows, keys) if keys else rows[:0]
            if len(keys) < len(table):
                heading = f"Sweep of {', '.join(keys)}: {' · '.join(filter(None, (*group, fixed)))}"
                picture = points(table, keys, f"sweep-{len(sections) + 1}")
                sections.append(Section(heading, tables=[settings_table(table, keys)], lead=[picture]))
    return sections


def settings_of(run: Run) -> dict[str, str]:
    """The recipe of a run, the noise of its training captions as separate settings, and what its test rsum is of."""
    settings = recipe(run)
    config = flatten(run.record["config"])
    for group in ("criterion", "protocol"):
        entries = {key[len(group) + 1 :]: value for key, value in config.items() if key.startswith(group)}
        settings[group] = ", ".join(f"{key} {value}" for key, value in sorted(entries.items()) if key != "_target_")
    if (run.record.get("noise") or {}).get("index") is None:  # drawn: numbers; that of an index file stays one text
        del settings[NOISE]
        settings["data.noise.rate"] = str(config.get("data.noise.rate") or 0.0)
        settings["data.noise.protocol"] = str(config.get("data.noise.protocol"))
    return settings


def means(rows: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    """One row per combination of the settings `keys`, best on validation first: n (runs), seeds, and each split's rsum.

    rsum is the mean over the seeds under "val" and "test", its sample standard deviation under "val std", "test std";
    "mark" says how many of the runs collapsed.
    """
    columns = {"n": ("seed", "size"), "seeds": ("seed", distinct_seeds)}
    for split in SPLITS:
        columns |= {split: (split, "mean"), f"{split} std": (split, "std")}
    table = rows.groupby(keys, as_index=False).agg(**columns, collapsed=("collapsed", "sum"))
    table["mark"] = list(map(collapsed_text, table["collapsed"], table["n"]))
    return table.sort_values(["val", *keys], ascending=[False, *[True] * len(keys)], ignore_index=True)


def settings_table(table: pd.DataFrame, keys: list[str]) -> ReportTable:
    """All settings, best on validation first; marked are the chosen one and, if different, the best on test."""
    shown = pd.DataFrame({key: table[key].map("{:g}".format) for key in keys})
    for split, words in SPLITS.items():
        spread = zip(table[split], table[f"{split} std"], table["mark"], strict=True)
        shown[f"{words} rsum"] = [spread_text(mean, std, 1) + mark for mean, std, mark in spread]
    shown["seeds"] = list(map(seeds_text, table["n"], table["seeds"]))
    shown[""] = np.where(table["test"] == table["test"].max(), "best on test, not chosen", "")
    shown.loc[0, ""] = "chosen"
    return ReportTable.from_frame(
        shown,
        "All settings, best on validation first: mean ± sample standard deviation over the seeds.",
        text_left=0,
        text_right=2,
    )


@matplotlib.rc_context(RC)
def points(table: pd.DataFrame, keys: list[str], name: str) -> Picture:
    """Plot of rsum over each setting, a point for every combination that was tried."""
    rows = -(-len(keys) // 2)
    figure = new_figure(9.4, 3.6 * rows)
    for number, key in enumerate(keys, 1):
        axes = figure.add_subplot(rows, min(len(keys), 2), number)
        for split, words in SPLITS.items():
            axes.errorbar(
                table[key], table[split], table[f"{split} std"], linestyle="none", label=words, **STYLES[split]
            )
        for at, value, mark in table.loc[table["mark"] != "", [key, "val", "mark"]].to_numpy():
            axes.annotate(mark, (at, value), (3, 3), textcoords="offset points")
        axes.axvline(table[key][0], color="#888888", linestyle=":", linewidth=1.2)
        if table[key].min() > 0 and table[key].max() / table[key].min() >= WIDE_RANGE:
            axes.set_xscale("log")
        axes.set(xlabel=literal_text(key), ylabel="rsum")
    figure.axes[0].legend()
    return render(
        figure,
        name,
        f"rsum over {' and over '.join(keys)}, mean ± sample standard deviation over the seeds. Dotted: what "
        "validation chooses.",
    )
