"""Criteria measured on validation with several values of one parameter, such as rgm's λ: chosen there, told on test."""

import json
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from vsehub.recipes import flatten
from vsehub.report.recipes import NOISE, label_rank, recipe, variants
from vsehub.report.runs import Run
from vsehub.report.tables import COLUMNS, seeds_text, spread_text

FIGURES = ("val", "test")
MOST_SETTINGS = 4  # that vary together; runs that differ in more were not swept but trained differently
FEWEST_POINTS = 5  # of a search whose points share no values


class Sweep(NamedTuple):
    """The finished runs of one loss whose recipes differ in numbers alone.

    fixed: in words, what parts them from other runs of that loss; "" where nothing does. keys: the settings that vary.
    table: a row for each of their values, best on validation first: the keys, n, seeds, val, val std, test, test std;
    rsum, mean and sample standard deviation over the seeds. grid: whether values recur, so that one setting can be
    followed with the others held.
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


def find_sweeps(runs: Sequence[Run]) -> list[Sweep]:
    """Every sweep among the runs, the losses in their order; unfinished runs are left out."""
    groups = defaultdict(list)
    for run in runs:
        if run.finished and (run.record.get("best") or {}).get("val/rsum") is not None:
            groups[run.record["dataset"], run.record["architecture"], run.record["label"]].append(run)
    return [
        sweep
        for place in sorted(groups, key=lambda place: (*place[:2], label_rank(place[2])))
        for sweep in _sweeps_of(place, groups[place])
    ]


def _sweeps_of(place: tuple[str, str, str], runs: Sequence[Run]) -> list[Sweep]:
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
        grid = all(_recurs(table, [other for other in keys if other != key]) for key in keys)
        if grid or len(table) >= FEWEST_POINTS:
            found.append(Sweep(*map(str, place), fixed, tuple(keys), table, grid))
    return found


def settings_of(run: Run) -> dict[str, str]:
    """The recipe of a run, with the noise of its training captions as settings of their own."""
    settings = recipe(run)
    asked = flatten(run.record["config"])
    if (run.record.get("noise") or {}).get("index") is None:  # drawn; an index that was given stays in words
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
    """The keys of more than one value; of keys that are everywhere equal, one following the other, the shortest."""
    found: dict[tuple, str] = {}
    for key in sorted(keys, key=lambda key: (len(key), key)):
        if frame[key].nunique() > 1:
            found.setdefault(tuple(frame[key]), key)
    return sorted(found.values())


def _means(frame: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    rows = [
        dict(zip(keys, values, strict=True))
        | {"n": len(group), "seeds": ", ".join(map(str, sorted(group["seed"])))}
        | {name: group[name].mean() for name in FIGURES}
        | {f"{name} std": group[name].std(ddof=1) for name in FIGURES}
        for values, group in frame.groupby(keys)
    ]
    return pd.DataFrame(rows).sort_values(["val", *keys], ascending=[False, *[True] * len(keys)], ignore_index=True)


def _recurs(table: pd.DataFrame, others: list[str]) -> bool:
    return not others or bool(table.duplicated(others).any())


def matrix(sweep: Sweep, figure: str = "val") -> pd.DataFrame:
    """The means of a sweep of two settings: rows are the second's values, columns the first's, NaN where no run is."""
    first, second = sweep.keys
    return sweep.table.pivot(index=second, columns=first, values=figure)


def slices(sweep: Sweep) -> dict[str, pd.DataFrame]:
    """For each setting the rows in which all others have the values of the best on validation, ordered by it."""
    best = sweep.table.iloc[0]
    held = {key: [other for other in sweep.keys if other != key] for key in sweep.keys}
    return {
        key: sweep.table[(sweep.table[others] == best[others]).all(axis=1)].sort_values(key, ignore_index=True)
        for key, others in held.items()
    }


def choice_sentences(sweep: Sweep) -> list[str]:
    """Which setting validation chooses, its test figure, what lies within the spread, and what is missing."""
    table, best = sweep.table, sweep.table.iloc[0]
    told = [
        f"Chosen on validation alone: {_values(sweep, best)}, with a validation rsum of "
        f"{spread_text(best['val'], best['val std'], 1)} over {best['n']} seed{'' if best['n'] == 1 else 's'}; "
        f"test rsum {spread_text(best['test'], best['test std'], 1)}."
    ]
    others = table.iloc[1:]
    if table["val std"].notna().all():
        near = int((best["val"] - others["val"] <= best["val std"] + others["val std"]).sum())
        told.append(
            f"Within the spread of it, the sum of both standard deviations: {near} of the {len(others)} other settings."
        )
    else:
        told.append("Not every setting has several seeds: how much of its lead is chance these runs do not say.")
    if table["test"].notna().any() and table["test"].max() > best["test"]:
        top = table.loc[table["test"].idxmax()]
        told.append(
            f"On test {_values(sweep, top)} is best ({spread_text(top['test'], top['test std'], 1)}); it was not "
            "chosen, since validation did not say so."
        )
    if sweep.grid:
        cells = math.prod(table[key].nunique() for key in sweep.keys)
        if cells > len(table):
            told.append(f"{cells - len(table)} of the grid's {cells} settings have no finished run.")
    if table["n"].nunique() > 1:
        told.append(f"Settings have from {table['n'].min()} to {table['n'].max()} seeds; the table says which.")
    return told


def _values(sweep: Sweep, row: pd.Series) -> str:
    return ", ".join(f"{key} {row[key]:g}" for key in sweep.keys)


def setting_rows(sweep: Sweep) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of text of the table of all settings, best on validation first."""
    head = [*sweep.keys, "validation rsum", "test rsum", "seeds"]
    rows = [
        [
            *(f"{row[key]:g}" for key in sweep.keys),
            *(spread_text(row[name], row[f"{name} std"], 1) for name in FIGURES),
            seeds_text(row["n"], row["seeds"]),
        ]
        for _, row in sweep.table.iterrows()
    ]
    return head, rows


PLACE = ["dataset", "architecture", "label", "variant", "protocol", "criterion", "reference", "reference_set"]
KEPT = ["i2t/r10", "t2i/r10", "rsum"]


class Tuning(NamedTuple):
    """A criterion measured on validation with several values of one parameter.

    table: a row a loss and value: label, variant, value, n, then mean and sample standard deviation over the runs
    ("<key> std") of val i2t/r10, t2i/r10 and rsum, and of test rsum ("test"), NaN where it was not measured.
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


def find_tunings(frame: pd.DataFrame) -> list[Tuning]:
    """The tunings among evaluations as `tables.results` gives them: those where one parameter, a number, differs."""
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
        found.append(Tuning(*map(str, place), differ[0], _tuned(measured, test)))
    return found


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _value(text: str, key: str, like: dict) -> float:
    """The parameter of an evaluation on test; NaN where it is no number or the others are not those of validation."""
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


def tuning_sentences(tuning: Tuning) -> list[str]:
    """For each loss the value that validation chooses, and its test figure where it was measured."""
    told = []
    for _, group in tuning.table.groupby(["label", "variant"], sort=False):
        best = group.loc[group["rsum"].idxmax()]
        name = f"{best['label']} ({best['variant']})" if best["variant"] else best["label"]
        test = (
            f"; test rsum {spread_text(best['test'], best['test std'], 1)}."
            if pd.notna(best["test"])
            else "; on test it was not measured."
        )
        number = f"{best['n']} run{'' if best['n'] == 1 else 's'}"
        told.append(
            f"{name}: chosen on validation alone, {tuning.parameter} {best['value']:g}, with a validation rsum of "
            f"{spread_text(best['rsum'], best['rsum std'], 1)} over {number}{test}"
        )
    return told


def tuning_rows(tuning: Tuning) -> tuple[list[str], list[list[str]]]:
    """Heads and rows of text of the table of all values."""
    headings = {column.key: column.heading for column in COLUMNS}
    head = ["loss", tuning.parameter, *(f"validation {headings[key]}" for key in KEPT), "test rsum", "runs"]
    rows = [
        [
            f"{row['label']} ({row['variant']})" if row["variant"] else row["label"],
            f"{row['value']:g}",
            *(spread_text(row[key], row[f"{key} std"], 1) for key in (*KEPT, "test")),
            str(row["n"]),
        ]
        for _, row in tuning.table.iterrows()
    ]
    return head, rows
