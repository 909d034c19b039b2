"""Measured figures beside published ones, with the published recipes, all from the tables that ship with vsehub."""

import io
from importlib.resources import files

import pandas as pd

from vsehub.checks import one_of
from vsehub.report.tables import COLUMNS, criterion_text, seeds_text, spread_text

PROTOCOLS = {"1k": "single"}  # the papers' 1,000 test images of Flickr30k are one ranking of the whole split
OWN_SETTINGS = {"lr": "lr", "batch_size": "batch_size", "max_epochs": "epochs"}  # config leaf -> hyperparameters.csv
PLACE = ["line", "figure", "dataset", "architecture", "protocol", "loss", "criterion", "seeds"]
FIGURES = [column.key for column in COLUMNS]


def _shipped(name: str) -> pd.DataFrame:
    text = files("vsehub.report").joinpath("published", name).read_text(encoding="utf-8")
    return pd.read_csv(io.StringIO(text), dtype={"table": str, "line": str, "note": str})


def published_table(paper: str, table: str) -> pd.DataFrame:
    """The rows of one published table, figures under the keys of the results. InputError names the choices."""
    frame = _shipped("paper_tables.csv")
    one_of("paper", paper, tuple(sorted(frame["paper"].unique())))
    frame = frame[frame["paper"] == paper]
    one_of("table", str(table), tuple(sorted(frame["table"].unique())))
    names = {column.key: column.key.replace("hubness/", "").replace("/", "_") for column in COLUMNS}
    return frame[frame["table"] == str(table)].rename(columns={name: key for key, name in names.items()})


def is_own_setting(label: str, key: str, value: str) -> bool:
    """Whether `key` (e.g. "optimizer.lr") = `value` is what a published recipe of the loss `label` sets."""
    column = OWN_SETTINGS.get(key.rpartition(".")[2])
    if column is None:
        return False
    frame = _shipped("hyperparameters.csv")
    return _number(value) in frame.loc[frame["loss"] == label, column].tolist()


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def beside_published(table: pd.DataFrame, paper: str, number: str) -> tuple[pd.DataFrame, list[str]]:
    """The aggregated `table` beside the published rows of the same losses and criteria.

    Returns a frame of PLACE, COLUMNS' keys and the published `note`, in which a line "published" is followed, for each
    measured counterpart, by "measured" (the means), "std" and "difference" (measured - published); and the sentences
    without which it would mislead. Measured rows are those on the test split without an inductive reference, as in
    the papers. Raises InputError on an unknown paper or table.
    """
    printed = published_table(paper, number)
    measured = table[(table["reference"] != "inductive") & (table["split"] == "test")]
    measured = measured.assign(loss=measured["label"])[measured["label"].isin(printed["loss"].dropna())]
    printed = printed[printed["loss"].isin(measured["loss"]) & printed["criterion"].isin(measured["criterion"])]
    known = printed["architecture"].isin(measured["architecture"])
    if known.any():
        printed = printed[known]
    lines, alone = [], []
    for _, row in printed.iterrows():
        found = measured[_counterparts(measured, row, set(printed["dataset"]), same_architecture=known.any())]
        lines.append({"figure": "published", "seeds": "", **row[["note", *FIGURES, *PLACE[:1], *PLACE[2:-1]]]})
        lines += [line for _, match in found.iterrows() for line in _measured_lines(row, match)]
        if found.empty:
            alone.append(row["line"])
    frame = pd.DataFrame(lines, columns=[*PLACE, *FIGURES, "note"])
    return frame, _sentences(printed, measured, alone, known.any())


def _counterparts(measured: pd.DataFrame, row: pd.Series, datasets: set[str], same_architecture: bool) -> pd.Series:
    """Which measured rows answer a published one.

    Those on one of the published `datasets` answer only its own rows, under the same protocol; others answer any.
    """
    protocols = (row["protocol"], PROTOCOLS.get(row["protocol"]))
    chosen = (measured["loss"] == row["loss"]) & (measured["criterion"] == row["criterion"])
    same = (measured["dataset"] == row["dataset"]) & measured["protocol"].isin(protocols)
    chosen &= same | ~measured["dataset"].isin(datasets)
    return chosen & (measured["architecture"] == row["architecture"]) if same_architecture else chosen


def _measured_lines(row: pd.Series, found: pd.Series) -> list[dict]:
    place = {"line": row["line"], **found[["dataset", "architecture", "protocol"]]}
    place["loss"] = f"{found['label']} ({found['variant']})" if found["variant"] else found["label"]
    place["criterion"] = criterion_text(found["criterion"], found["parameters"])
    place["seeds"] = seeds_text(found["n"], found["seeds"])
    figures = {
        "measured": {key: found[key] for key in FIGURES},
        "std": {key: found[f"{key} std"] for key in FIGURES},
        "difference": {key: found[key] - row[key] for key in FIGURES},
    }
    return [{"figure": name, **place, **values} for name, values in figures.items()]


def _sentences(printed: pd.DataFrame, measured: pd.DataFrame, alone: list[str], known: bool) -> list[str]:
    if printed.empty:
        return ["No row of this table has a loss and criterion that were measured on a test split."]
    sentences = []
    sources = " and ".join(sorted(set(printed["dataset"])))
    for dataset in sorted(set(measured["dataset"]) - set(printed["dataset"])):
        sentences.append(_other_data(dataset, sources))
    strangers = ", ".join(sorted(set(measured["architecture"]) - set(printed["architecture"])))
    if strangers and known:
        sentences.append(f"Left out, for no row of this table has their architecture: the runs of {strangers}.")
    elif strangers:
        sentences.append(
            f"No row of this table has the measured architecture ({strangers}): every published architecture of the "
            "measured losses is shown, and differences include that of the architecture."
        )
    if alone:
        sentences.append(
            f"Published without a measured counterpart (same loss, criterion and protocol): {', '.join(alone)}."
        )
    return sentences


def remarks(frame: pd.DataFrame) -> list[str]:
    """The sentences without which a frame of published and measured lines would mislead."""
    printed, measured = (frame[frame["figure"] == figure] for figure in ("published", "measured"))
    if measured.empty:
        return ["Nothing was measured: published figures alone."]
    seeds = sorted(set(measured["seeds"]))
    sentences = [f"Measured: means over seeds, ± one sample standard deviation; seeds: {'; '.join(seeds)}."]
    strangers = sorted(set(measured["dataset"]) - set(printed["dataset"]))
    sources = " and ".join(sorted(set(printed["dataset"])))
    sentences += [_other_data(dataset, sources) for dataset in strangers]
    if strangers:
        sentences.append(
            "There the rows keep loss, similarity, learning rate, positives and criterion; features, epochs and batch "
            "size are that data's own, so that rows which differ in their features alone show the same measurement."
        )
    corrected = sorted({text.partition(" ")[0] for text in measured["criterion"]} - {"nns"})
    if corrected:
        sentences.append(transductive(corrected))
    if measured["criterion"].str.contains("relaxation ").any():
        sentences.append("relaxation: λ of the matching; a/b/c: of those for R@1, R@5 and R@10, each fitted by itself.")
    alone = [line for line in printed["line"] if line not in set(measured["line"])]
    return [*sentences, *([f"Not measured: {', '.join(alone)}."] if alone else [])]


def transductive(criteria: list[str]) -> str:
    """What the named criteria saw, in words."""
    return f"{', '.join(criteria)}: the test queries themselves are the reference (transductive), as in the papers."


def _other_data(dataset: str, sources: str) -> str:
    return (
        f"Measured on {dataset}, published on {sources}: a difference between these figures "
        "is that of a different data set, not a reproduction error."
    )


def display(frame: pd.DataFrame) -> pd.DataFrame:
    """The frame of `beside_published` as text, standard deviations beside their means."""
    deviations = frame.shift(-1)  # a "measured" line is followed by its "std" line
    shown = frame[PLACE].copy()
    for column in COLUMNS:
        texts = []
        for figure, mean, std in zip(frame["figure"], frame[column.key], deviations[column.key], strict=True):
            text = spread_text(mean, std if figure == "measured" else float("nan"), column.decimals)
            texts.append(f"+{text}" if figure == "difference" and mean > 0 else text)
        shown[column.heading] = texts
    shown["note"] = frame["note"].fillna("")
    shown.loc[frame["figure"] == "difference", [name for name in PLACE if name not in ("line", "figure", "loss")]] = ""
    shown = shown[frame["figure"] != "std"]
    return shown if shown["note"].any() else shown.drop(columns="note")
