"""Sweeps of runs and tuned criteria: the settings tried, those that validation chooses, tables and plots.

A sweep consists of the finished runs of one loss whose recipes differ only in numbers. A tuning is a criterion measured
on validation with several values of one parameter, such as rgm's λ.
"""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import matplotlib
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from vsehub.recipes import flatten
from vsehub.report.pages.sections import Section
from vsehub.report.plots import NARROW, RC, Picture, is_narrow, new_figure, plain, render
from vsehub.report.recipes import NOISE, Series, label_rank, recipe, variants
from vsehub.report.results import COLUMNS, DIRECTIONS
from vsehub.report.run_plots import styles
from vsehub.report.runs import Run
from vsehub.report.tables import ReportTable, seeds_text, spread_text

SPLITS = ("val", "test")
WIDE_RANGE = 20  # ratio of the largest to the smallest value from which an axis is logarithmic
COLOUR = {"val": "#0072B2", "test": "#E69F00"}
MOST_SETTINGS = 4  # that vary in one sweep; runs that differ in more settings are not one sweep
FEWEST_POINTS = 5  # of a search whose trials share no values


class LossSweep(NamedTuple):
    """The finished runs of one loss whose recipes differ only in numbers.

    fixed: in words, the difference from other runs of that loss, or "". keys: the settings that vary. table: one row
    per combination of their values, best on validation first: the keys, n, seeds, val, val std, test, test std; rsum,
    mean and sample standard deviation over the seeds. grid: whether values recur, so that one setting can be varied
    with the others fixed.
    """

    dataset: str
    architecture: str
    label: str
    fixed: str
    keys: tuple[str, ...]
    table: pd.DataFrame
    grid: bool

    @property
    def title(self) -> str:
        """The sweep in words."""
        return " · ".join(filter(None, (self.dataset, self.architecture, self.label, self.fixed)))


def find_sweeps(runs: Sequence[Run]) -> list[LossSweep]:
    """All sweeps among the runs, in the order of the losses; unfinished runs are omitted."""
    groups = defaultdict(list)
    for run in runs:
        if run.finished and (run.record.get("best") or {}).get("val/rsum") is not None:
            groups[run.record["dataset"], run.record["architecture"], run.record["label"]].append(run)
    return [
        sweep
        for place in sorted(groups, key=lambda place: (*place[:2], label_rank(place[2])))
        for sweep in _sweeps_of(place, groups[place])
    ]


def _sweeps_of(place: tuple[str, str, str], runs: Sequence[Run]) -> list[LossSweep]:
    dataset, architecture, label = map(str, place)
    settings = [settings_of(run) for run in runs]
    names = sorted({key for one in settings for key in one})
    numeric = [key for key in names if all(_number(one.get(key)) is not None for one in settings)]
    words = variants([{key: value for key, value in one.items() if key not in numeric} for one in settings])
    found = []
    for fixed in sorted(set(words)):
        own = [number for number, one in enumerate(words) if one == fixed]
        frame = pd.DataFrame(
            [
                {key: _number(settings[number][key]) for key in numeric}
                | {
                    "seed": runs[number].record["seed"],
                    "val": runs[number].record["best"]["val/rsum"],
                    "test": (runs[number].record.get("metrics") or {}).get("test/rsum", math.nan),
                }
                for number in own
            ]
        )
        keys = _varying(frame, numeric)
        if not 0 < len(keys) <= MOST_SETTINGS:
            continue
        table = _means(frame, keys)
        others = [[other for other in keys if other != key] for key in keys]
        grid = all(not rest or bool(table.duplicated(rest).any()) for rest in others)
        if grid or len(table) >= FEWEST_POINTS:
            found.append(LossSweep(dataset, architecture, label, fixed, tuple(keys), table, grid))
    return found


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


def _number(text: str | None) -> float | None:
    try:
        value = float("nan" if text is None else text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _varying(frame: pd.DataFrame, keys: Sequence[str]) -> list[str]:
    """The keys with more than one value; of keys that always vary together, only the shortest."""
    found: dict[tuple, str] = {}
    for key in sorted(keys, key=lambda key: (len(key), key)):
        if frame[key].nunique() > 1:
            found.setdefault(tuple(frame[key]), key)
    return sorted(found.values())


def _means(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = [
        dict(zip(keys, values, strict=True))
        | {"n": len(group), "seeds": ", ".join(map(str, sorted(group["seed"])))}
        | {name: group[name].mean() for name in SPLITS}
        | {f"{name} std": group[name].std(ddof=1) for name in SPLITS}
        for values, group in frame.groupby(keys)
    ]
    return pd.DataFrame(rows).sort_values(["val", *keys], ascending=[False, *[True] * len(keys)], ignore_index=True)


def matrix(sweep: LossSweep, split: str = "val") -> pd.DataFrame:
    """The means of a sweep of two settings: rows are the second's values, columns the first's, NaN without a run."""
    first, second = sweep.keys
    return sweep.table.pivot(index=second, columns=first, values=split)


def slices(sweep: LossSweep) -> dict[str, pd.DataFrame]:
    """For each setting, the rows in which all other settings have their best values on validation, sorted by it."""
    best = sweep.table.iloc[0]
    held = {key: [other for other in sweep.keys if other != key] for key in sweep.keys}
    return {
        key: sweep.table[(sweep.table[others] == best[others]).all(axis=1)].sort_values(key, ignore_index=True)
        for key, others in held.items()
    }


def choice_table(sweep: LossSweep) -> ReportTable:
    """The setting chosen on validation and, if different, the best setting on test."""
    best = sweep.table.iloc[0]
    rows = [["chosen on validation", *_setting_row(sweep, best)]]
    if sweep.table["test"].notna().any() and sweep.table["test"].max() > best["test"]:
        rows.append(["best on test, not chosen", *_setting_row(sweep, sweep.table.loc[sweep.table["test"].idxmax()])])
    return ReportTable(["", *_setting_head(sweep)], rows, "The choice, by validation rsum only.")


def sweep_notes(sweep: LossSweep) -> list[str]:
    """Notes on missing runs: settings without a finished run, and seeds."""
    table, notes = sweep.table, []
    cells = math.prod(table[key].nunique() for key in sweep.keys)
    if sweep.grid and cells > len(table):
        notes.append(f"{cells - len(table)} of the grid's {cells} settings have no finished run")
    if table["n"].nunique() > 1:
        notes.append(f"settings have {table['n'].min()} to {table['n'].max()} seeds")
    if (table["n"] == 1).any():
        notes.append("one seed: these runs do not show how much of a lead is chance")
    return notes


def settings_table(sweep: LossSweep) -> ReportTable:
    """All settings, best on validation first."""
    rows = [_setting_row(sweep, row) for _, row in sweep.table.iterrows()]
    caption = "All settings, best on validation first: mean ± sample standard deviation over the seeds."
    return ReportTable(_setting_head(sweep), rows, caption, words=0)


def _setting_head(sweep: LossSweep) -> list[str]:
    return [*sweep.keys, "validation rsum", "test rsum", "seeds"]


def _setting_row(sweep: LossSweep, row: pd.Series) -> list[str]:
    return [
        *(f"{row[key]:g}" for key in sweep.keys),
        *(spread_text(row[name], row[f"{name} std"], 1) for name in SPLITS),
        seeds_text(row["n"], row["seeds"]),
    ]


PLACE = ["dataset", "architecture", "label", "variant", "protocol", "criterion", "reference", "reference_set"]
KEPT = ["i2t/r10", "t2i/r10", "rsum"]


class TunedCriterion(NamedTuple):
    """A criterion measured on validation with several values of one parameter.

    table: one row per loss and value: label, variant, value, n, then mean and sample standard deviation over the runs
    ("<key> std") of val i2t/r10, t2i/r10 and rsum, and of test rsum ("test"), NaN if it was not measured.
    """

    dataset: str
    architecture: str
    protocol: str
    criterion: str
    reference: str
    reference_set: str
    parameter: str
    table: pd.DataFrame

    @property
    def title(self) -> str:
        """The tuning in words."""
        seen = () if self.reference == "none" else (self.reference,)
        return " · ".join((self.dataset, self.architecture, f"protocol {self.protocol}", self.criterion, *seen))


def find_tunings(frame: pd.DataFrame) -> list[TunedCriterion]:
    """The tunings in a frame of `results`: evaluations that differ in one parameter, a number."""
    if frame.empty:
        return []
    known = frame[[*PLACE, "split", "run", "parameters", *KEPT]].copy()
    known["reference_set"] = known["reference_set"].str.replace(r"^the \w+ queries", "the queries", regex=True)
    where = [name for name in PLACE if name not in ("label", "variant")]
    found = []
    for place, group in known[known["split"] == "val"].groupby(where, sort=True):
        named = [json.loads(text) for text in group["parameters"]]
        keys = sorted({key for one in named for key in one})
        differ = [key for key in keys if len({json.dumps(one.get(key)) for one in named}) > 1]
        if len(differ) != 1 or not all(_is_number(one.get(differ[0])) for one in named):
            continue
        value = [float(one[differ[0]]) for one in named]
        measured = group.assign(value=value)
        test = known[(known["split"] == "test") & (known[where] == list(place)).all(axis=1)]
        test = test.assign(value=[_value(text, differ[0], named[0]) for text in test["parameters"]])
        dataset, architecture, protocol, criterion, reference, seen = map(str, place)
        table = _tuned(measured, test)
        found.append(TunedCriterion(dataset, architecture, protocol, criterion, reference, seen, differ[0], table))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(text: str, key: str, like: dict) -> float:
    """The parameter of an evaluation on test; NaN if it is not a number or the others differ from validation's."""
    one = json.loads(text)
    same = {k: v for k, v in one.items() if k != key} == {k: v for k, v in like.items() if k != key}
    return float(one[key]) if same and _is_number(one.get(key)) else math.nan


def _tuned(measured: pd.DataFrame, test: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for (label, variant, value), group in measured.groupby(["label", "variant", "value"]):
        beside = test[(test["label"] == label) & (test["variant"] == variant) & (test["value"] == value)]["rsum"]
        row = {"label": label, "variant": variant, "value": value, "n": group["run"].nunique()}
        for key in KEPT:
            row |= {key: group[key].mean(), f"{key} std": group[key].std(ddof=1)}
        rows.append(row | {"test": beside.mean(), "test std": beside.std(ddof=1)})
    order = sorted(rows, key=lambda row: (label_rank(row["label"]), row["variant"], row["value"]))
    return pd.DataFrame(order)


def chosen_table(tuning: TunedCriterion) -> ReportTable:
    """The value that validation chooses for each loss."""
    chosen = tuning.table.groupby(["label", "variant"], sort=False)["rsum"].idxmax()
    rows = [_value_row(tuning.table.loc[place]) for place in chosen]
    return ReportTable(_value_head(tuning), rows, "The choice for each loss, by validation rsum only.")


def values_table(tuning: TunedCriterion) -> ReportTable:
    """All values of all losses."""
    rows = [_value_row(row) for _, row in tuning.table.iterrows()]
    return ReportTable(_value_head(tuning), rows, "All values, measured on validation, and on test if requested.")


def _value_head(tuning: TunedCriterion) -> list[str]:
    headings = {column.key: column.heading for column in COLUMNS}
    return ["loss", tuning.parameter, *(f"validation {headings[key]}" for key in KEPT), "test rsum", "runs"]


def _value_row(row: pd.Series) -> list[str]:
    return [
        f"{row['label']} ({row['variant']})" if row["variant"] else row["label"],
        f"{row['value']:g}",
        *(spread_text(row[key], row[f"{key} std"], 1) for key in (*KEPT, "test")),
        str(row["n"]),
    ]


def sweep_sections(runs: Sequence[Run], frame: pd.DataFrame) -> list[Section]:
    """The page's sections of the sweeps among the runs, and of the criteria tuned among the evaluations `frame`."""
    with matplotlib.rc_context(RC):
        sections = []
        for number, sweep in enumerate(find_sweeps(runs), 1):
            name = f"sweep-{number}"
            pictures = [heat_map(sweep, f"{name}-heat")] if sweep.grid and len(sweep.keys) == 2 else []
            pictures.append(lines(sweep, f"{name}-slices") if sweep.grid else points(sweep, f"{name}-points"))
            tables = [choice_table(sweep), settings_table(sweep)]
            heading = f"Sweep of {', '.join(sweep.keys)}: {sweep.title}"
            sections.append(Section(heading, sweep_notes(sweep), tables, pictures=pictures))
        for number, tuning in enumerate(find_tunings(frame), 1):
            heading = f"{tuning.parameter} chosen on validation: {tuning.title}"
            tables = [chosen_table(tuning), values_table(tuning)]
            sections.append(Section(heading, tables=tables, pictures=[tuned_lines(tuning, f"tuning-{number}")]))
    return sections


def heat_map(sweep: LossSweep, name: str) -> Picture:
    """Plot of validation rsum over two settings; a cell without a run is hatched, the chosen one framed."""
    means = matrix(sweep)
    caption = (
        f"Validation rsum over {sweep.keys[0]} and {sweep.keys[1]}, mean over the seeds. Framed: the best, "
        "which is chosen. Hatched: no finished run."
    )
    height = 1.5 + 0.42 * len(means)
    wide, narrow = (_heat_map(sweep, means, new_figure(width, height)) for width in (9.4, NARROW))
    return render(wide, name, caption, None, narrow)


def _heat_map(sweep: LossSweep, means: pd.DataFrame, figure: Figure) -> Figure:
    axes, values = figure.add_subplot(), means.to_numpy()
    image = axes.imshow(values, cmap="Blues", aspect="auto", origin="lower")
    axes.grid(False)
    light = np.nanmin(values) + 0.6 * (np.nanmax(values) - np.nanmin(values))
    for row, column in np.ndindex(values.shape):
        value = values[row, column]
        if np.isnan(value):
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(Rectangle(corner, 1, 1, facecolor="#f2f2f2", edgecolor="#aaaaaa", hatch="///", linewidth=0))
        colour = "white" if value > light else "black"
        size = 8 if is_narrow(figure) else 10
        axes.text(
            column, row, "–" if np.isnan(value) else f"{value:.1f}", ha="center", va="center", color=colour, size=size
        )
    best = sweep.table.iloc[0]
    place = means.columns.get_loc(best[sweep.keys[0]]), means.index.get_loc(best[sweep.keys[1]])
    axes.add_patch(Rectangle((place[0] - 0.5, place[1] - 0.5), 1, 1, fill=False, edgecolor="#D55E00", linewidth=2.5))
    axes.set_xticks(range(values.shape[1]), [f"{value:g}" for value in means.columns])
    axes.set_yticks(range(values.shape[0]), [f"{value:g}" for value in means.index])
    axes.set(xlabel=plain(sweep.keys[0]), ylabel=plain(sweep.keys[1]))
    if not is_narrow(figure):
        figure.colorbar(image, ax=axes, label="validation rsum")
    return figure


def lines(sweep: LossSweep, name: str) -> Picture:
    """Plot of validation and test rsum over each setting, with the others at the chosen values."""
    several = len(sweep.keys) > 1
    caption = (
        f"rsum over {' and over '.join(sweep.keys)}"
        + (", the other settings at the chosen values" if several else "")
        + ": mean over the seeds; the band is ± one sample standard deviation. Dotted: what validation chooses."
    )
    wide, narrow = (_lines(sweep, new_figure(*size)) for size in _sizes(len(sweep.keys)))
    return render(wide, name, caption, None, narrow)


def _lines(sweep: LossSweep, figure: Figure) -> Figure:
    for axes, (key, rows) in zip(_panels(figure, len(sweep.keys)), slices(sweep).items(), strict=True):
        for figure_name, words in (("val", "validation"), ("test", "test")):
            style = {"color": COLOUR[figure_name], "marker": "os"[figure_name == "test"]}
            _line(axes, rows[key], rows[figure_name], rows[f"{figure_name} std"], words, style)
        axes.axvline(sweep.table.iloc[0][key], color="#888888", linestyle=":", linewidth=1.2)
        _scale(axes, rows[key])
        axes.set(xlabel=plain(key), ylabel="rsum")
    figure.axes[0].legend()
    return figure


def _line(axes: Axes, x: pd.Series, mean: pd.Series, std: pd.Series, label: str, style: dict) -> None:
    axes.plot(x, mean, label=label, markersize=4.5, linewidth=1.8, **style)
    axes.fill_between(x, mean - std.fillna(0), mean + std.fillna(0), color=style["color"], alpha=0.16, lw=0)


def points(sweep: LossSweep, name: str) -> Picture:
    """Plot of validation rsum over each setting, for a search whose trials share no values."""
    caption = "Validation rsum of every setting that was tried, over each of its values. Ringed: the chosen one."
    wide, narrow = (_points(sweep, new_figure(*size)) for size in _sizes(len(sweep.keys)))
    return render(wide, name, caption, None, narrow)


def _points(sweep: LossSweep, figure: Figure) -> Figure:
    for axes, key in zip(_panels(figure, len(sweep.keys)), sweep.keys, strict=True):
        axes.plot(sweep.table[key], sweep.table["val"], "o", color=COLOUR["val"], markersize=4.5)
        best = sweep.table.iloc[0]
        axes.plot(best[key], best["val"], "o", markersize=11, mfc="none", mec="#D55E00", mew=2)
        _scale(axes, sweep.table[key])
        axes.set(xlabel=plain(key), ylabel="validation rsum")
    return figure


def tuned_lines(tuning: TunedCriterion, name: str) -> Picture:
    """Plot of R@10 on validation over the parameter, by direction, one line per loss."""
    caption = (
        f"Validation R@10 over {tuning.parameter} of {tuning.criterion}: mean over the runs; the band is ± one sample "
        "standard deviation."
    )
    wide, narrow = (_tuned_lines(tuning, new_figure(*size)) for size in _sizes(2))
    return render(wide, name, caption, None, narrow)


def _tuned_lines(tuning: TunedCriterion, figure: Figure) -> Figure:
    groups = {
        Series(tuning.dataset, tuning.architecture, label, variant): rows
        for (label, variant), rows in tuning.table.groupby(["label", "variant"], sort=False)
    }
    look = styles(groups)
    for axes, (side, heading) in zip(_panels(figure, 2), DIRECTIONS.items(), strict=True):
        for series, rows in groups.items():
            key = f"{side}/r10"
            _line(axes, rows["value"], rows[key], rows[f"{key} std"], plain(series.title), look[series.title])
        _scale(axes, tuning.table["value"])
        axes.set(xlabel=plain(tuning.parameter), ylabel="R@10 (%)", title=heading)
    figure.axes[0].legend()
    return figure


def _sizes(panels: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """Width and height in inches, on a large screen and on a phone."""
    return (9.4, 3.6 * -(-panels // 2)), (NARROW, 3.2 * panels)


def _panels(figure: Figure, number: int) -> list[Axes]:
    """`count` axes in two columns; on a phone, one above the other."""
    columns = 1 if is_narrow(figure) else min(number, 2)
    return [figure.add_subplot(-(-number // columns), columns, place + 1) for place in range(number)]


def _scale(axes: Axes, values: pd.Series) -> None:
    """Use a logarithmic scale for positive values with a wide range."""
    if values.min() > 0 and values.max() / values.min() >= WIDE_RANGE:
        axes.set_xscale("log")
