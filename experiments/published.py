"""The papers' tables and recipes (papers/*.csv), and measured values beside the published ones."""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

from vsehub.checks import one_of
from vsehub.report.results import COLUMNS
from vsehub.report.tables import ReportTable, criterion_text, seeds_text, spread_text

PAPERS = Path(__file__).parent / "papers"
PROTOCOLS = {"1k": "single"}  # the papers' 1,000 test images of Flickr30k are one ranking of the whole split
PLACE = ["line", "value", "dataset", "architecture", "protocol", "loss", "criterion", "seeds"]
METRICS = list(COLUMNS)
FEWEST_ROWS = 4  # whose order is compared with the published one


def published_table(paper: str, table: str) -> pd.DataFrame:
    """The rows of a published table, with the results' keys. Raises InputError for an unknown table."""
    frame = pd.read_csv(PAPERS / "paper_tables.csv", dtype={"table": str, "line": str, "note": str})
    one_of("paper", paper, tuple(sorted(frame["paper"].unique())))
    frame = frame[frame["paper"] == paper]
    one_of("table", str(table), tuple(sorted(frame["table"].unique())))
    names = {key: key.replace("hubness/", "").replace("/", "_") for key in COLUMNS}
    return frame[frame["table"] == str(table)].rename(columns={name: key for key, name in names.items()})


def beside_published(table: pd.DataFrame, paper: str, number: str) -> tuple[pd.DataFrame, list[str]]:
    """The aggregated `table` beside the published rows of the same losses and criteria.

    Returns a frame of PLACE, COLUMNS' keys and the published `note`, in which each line "published" is followed, for
    each measured counterpart, by those of `measured_lines`; and the notes that are needed to read it correctly.
    Measured rows are those on the test split without an inductive reference, as in the papers. Raises InputError for an
    unknown paper or table.
    """
    printed = published_table(paper, number)
    measured = table[(table["reference"] != "inductive") & (table["split"] == "test")]
    measured = measured.assign(loss=measured["label"])[measured["label"].isin(printed["loss"].dropna())]
    printed = printed[printed["loss"].isin(measured["loss"]) & printed["criterion"].isin(measured["criterion"])]
    known = printed["architecture"].isin(measured["architecture"])
    if known.any():
        printed = printed[known]
    lines, unanswered = [], []
    for _, row in printed.iterrows():
        counterparts = measured[_counterparts(measured, row, set(printed["dataset"]), same_architecture=known.any())]
        lines.append({"value": "published", "seeds": "", **row[["note", *METRICS, *PLACE[:1], *PLACE[2:-1]]]})
        lines += [line for _, match in counterparts.iterrows() for line in _measured_lines(row, match)]
        if counterparts.empty:
            unanswered.append(row["line"])
    frame = pd.DataFrame(lines, columns=[*PLACE, *METRICS, "note"])
    return frame, [*_notes(printed, measured, unanswered, known.any()), *order_notes(frame)]


def _counterparts(measured: pd.DataFrame, row: pd.Series, datasets: set[str], same_architecture: bool) -> pd.Series:
    """The measured rows that are comparable with a published one.

    Rows on one of the published `datasets` only match its rows under the same protocol; other rows match any.
    """
    protocols = (row["protocol"], PROTOCOLS.get(row["protocol"]))
    chosen = (measured["loss"] == row["loss"]) & (measured["criterion"] == row["criterion"])
    same = (measured["dataset"] == row["dataset"]) & measured["protocol"].isin(protocols)
    chosen &= same | ~measured["dataset"].isin(datasets)
    return chosen & (measured["architecture"] == row["architecture"]) if same_architecture else chosen


def _measured_lines(row: pd.Series, measured: pd.Series) -> list[dict]:
    place = {"line": row["line"], **measured[["dataset", "architecture", "protocol"]]}
    place["loss"] = f"{measured['label']} ({measured['variant']})" if measured["variant"] else measured["label"]
    place["criterion"] = criterion_text(measured["criterion"], measured["parameters"])
    place["seeds"] = seeds_text(measured["n"], measured["seeds"])
    return measured_lines(row, place, measured[METRICS], measured[[f"{key} std" for key in METRICS]].set_axis(METRICS))


def measured_lines(row: pd.Series, place: dict[str, str], means: pd.Series, deviations: pd.Series) -> list[dict]:
    """The rows below a published row: "measured" (the means), "std" and "difference" (measured - published).

    row: as `published_table` has it. place: what was measured, the keys of PLACE. On other data than the row's own a
    difference in points means nothing, and there is none: `order_notes` compares the rows' order instead.
    """
    values = {"measured": means, "std": deviations}
    if place["dataset"] == row["dataset"]:
        values["difference"] = means.astype(float) - row[METRICS].astype(float)
    return [{"value": name, **place, **numbers} for name, numbers in values.items()]


def order_notes(frame: pd.DataFrame) -> list[str]:
    """For each data set that is not the published rows' own: whether its rows are in the published order, by rsum.

    frame: of `beside_published`. Rows with one measurement, which differ only in what the data lack, count once, with
    the mean of their published values. The interval is of 2,000 draws of rows with replacement.
    """
    printed = frame["rsum"].where(frame["value"] == "published").ffill()
    strangers = frame["dataset"] != frame["dataset"].where(frame["value"] == "published").ffill()
    rows = frame.assign(published=printed)[(frame["value"] == "measured") & strangers].dropna(
        subset=["published", "rsum"]
    )
    notes = []
    for dataset, of_dataset in rows.groupby("dataset"):
        pairs = (
            of_dataset.groupby(["architecture", "loss", "criterion", "protocol"])[["published", "rsum"]]
            .mean()
            .to_numpy()
        )
        if len(pairs) < FEWEST_ROWS:
            continue
        tau = _tau(*pairs.T)
        low, high = stats.bootstrap(
            tuple(pairs.T), _tau, paired=True, vectorized=False, n_resamples=2000, method="percentile", rng=0
        ).confidence_interval
        notes.append(
            f"order of {len(pairs)} rows by rsum, {dataset} against published: Kendall's τ {tau:.2f} "
            f"(95 % interval {low:.2f} to {high:.2f}; 1 is the same order)"
        )
    return notes


def _tau(first: np.ndarray, second: np.ndarray) -> float:
    tau = stats.kendalltau(first, second).statistic
    return 0.0 if np.isnan(tau) else float(tau)  # one side all equal: no order


def _notes(printed: pd.DataFrame, measured: pd.DataFrame, unanswered: list[str], known: bool) -> list[str]:
    if printed.empty:
        return ["no row of this table has a loss and criterion that were measured on a test split"]
    notes = other_data(set(measured["dataset"]), set(printed["dataset"]))
    strangers = ", ".join(sorted(set(measured["architecture"]) - set(printed["architecture"])))
    if strangers and known:
        notes.append(f"left out, for no row of this table has their architecture: {strangers}")
    elif strangers:
        notes.append(
            f"no row of this table has the measured architecture ({strangers}): all published ones are shown, of other "
            "architectures"
        )
    if unanswered:
        rows = ", ".join(unanswered)
        notes.append(f"published without a measured counterpart (same loss, criterion and protocol): {rows}")
    return notes


def other_data(measured: set[str], published: set[str]) -> list[str]:
    """One note per measured data set that is not among the published ones."""
    sources = " and ".join(sorted(published))
    return [
        f"measured on {dataset}, published on {sources}: points are of different data and cannot be compared"
        for dataset in sorted(measured - published)
    ]


def published_beside_table(frame: pd.DataFrame, caption: str = "") -> ReportTable:
    """The frame of `beside_published` as text, with standard deviations beside the means."""
    deviations = frame.shift(-1)  # a "measured" line is followed by its "std" line
    shown = frame[PLACE].astype(object).copy()
    for key, (heading, decimals) in COLUMNS.items():
        texts = []
        for value, mean, std in zip(frame["value"], frame[key], deviations[key], strict=True):
            text = spread_text(float(mean), float(std) if value == "measured" else float("nan"), decimals)
            texts.append(f"+{text}" if value == "difference" and mean > 0 else text)
        shown[heading] = texts
    shown["note"] = frame["note"].fillna("")
    shown.loc[frame["value"] == "difference", [name for name in PLACE if name not in ("line", "value", "loss")]] = ""
    shown = shown[frame["value"] != "std"]
    shown = shown if shown["note"].any() else shown.drop(columns="note")
    return ReportTable.from_frame(shown, caption, text_left=len(PLACE), text_right=int("note" in shown))


def short_published_table(frame: pd.DataFrame, caption: str = "") -> ReportTable:
    """The frame of `beside_published` at the width of a terminal: the rsum of each line, published and measured."""
    lines: list[dict[str, str]] = []
    deviations = frame["rsum"].shift(-1)  # a "measured" line is followed by its "std" line
    for (_, row), std in zip(frame.iterrows(), deviations, strict=True):
        if row["value"] == "published":
            place = {key: str(row[key]) for key in ("line", "architecture", "loss", "criterion")}
            lines.append(place | {"published": spread_text(row["rsum"], float("nan"), 1), "measured": ""})
        elif row["value"] == "measured":
            if lines[-1]["measured"]:
                lines.append(dict.fromkeys(lines[-1], ""))
            lines[-1]["measured"] = spread_text(row["rsum"], std, 1)
    columns = ["line", "architecture", "loss", "criterion", "published", "measured"]
    return ReportTable.from_frame(pd.DataFrame(lines, columns=columns), caption, text_left=4)
