"""Criteria measured on validation with several values of one parameter, such as rgm's λ: chosen there, told on test."""

import json
import math
from typing import NamedTuple

import pandas as pd

from vsehub.report.recipes import label_rank
from vsehub.report.tables import COLUMNS, spread_text

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
