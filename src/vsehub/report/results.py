"""Results of runs: one line per evaluation, mean and sample standard deviation over seeds, and paired tests."""

import itertools
import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from vsehub.report.recipes import Series, data_keys, differing, label_rank, series_rank
from vsehub.report.runs import Run
from vsehub.report.statistics import APART, FEWEST_SEEDS, TOO_FEW, Pair, Parts, bootstrap_interval, compare
from vsehub.report.statistics import COLUMNS as COMPARED
from vsehub.report.tables import (
    ReportTable,
    criterion_text,
    duration,
    probability_text,
    seeds_text,
    spread_text,
)

KEYS = ["dataset", "architecture", "label", "variant", "split", "protocol", "criterion", "parameters", "reference"]


class Setting(NamedTuple):
    """Data set, architecture, split and protocol: only values under the same setting are compared."""

    dataset: str
    architecture: str
    split: str
    protocol: str

    @property
    def title(self) -> str:
        """The setting in words."""
        return f"{self.dataset} · {self.architecture} · {self.split} split · protocol {self.protocol}"


class Column(NamedTuple):
    """A column of the tables: its metric's key in the results, its heading and its number of decimals."""

    key: str
    heading: str
    decimals: int


DIRECTIONS = {"i2t": "Image → text", "t2i": "Text → image"}
RANKS = (("r1", "R@1"), ("r5", "R@5"), ("r10", "R@10"), ("medr", "Med r"), ("meanr", "Mean r"))
COLUMNS = (
    *(Column(f"{side}/{rank}", f"{side} {heading}", 1) for side in DIRECTIONS for rank, heading in RANKS),
    Column("rsum", "rsum", 1),
    Column("hubness/hs_sum", "hs_sum", 2),
)
HEADINGS = {"label": "loss", "wall_seconds": "wall time"}


def results(runs: Sequence[Run], series: dict[str, Series]) -> pd.DataFrame:
    """One line per run and evaluation, with every metric in full precision; no lines if nothing was evaluated."""
    lines = [
        {**series[run.path]._asdict(), **_run_facts(run), **_evaluation_facts(name, evaluation)}
        for run in runs
        for name, evaluation in run.evaluations.items()
    ]
    frame = pd.DataFrame(lines, columns=None if lines else [*KEYS, "seed", "run", "evaluation"])
    for key in ("wall_seconds", *(column.key for column in COLUMNS)):
        frame[key] = pd.to_numeric(frame[key]) if key in frame else float("nan")
    return frame


def _run_facts(run: Run) -> dict:
    record = run.record
    train = (record.get("data") or {}).get("train") or {}
    return {
        "run": run.path,
        "name": record["name"],
        "seed": record["seed"],
        "status": record["status"],
        "best_epoch": (record.get("best") or {}).get("epoch"),
        "wall_seconds": record.get("wall_seconds"),
        "train_fingerprint": train.get("fingerprint"),
    }


def _evaluation_facts(name: str, evaluation: dict) -> dict:
    facts = {key: evaluation.get(key) for key in ("split", "protocol", "criterion", "reference", "reference_set")}
    return {
        "evaluation": name,
        **{key: str(value) for key, value in facts.items()},
        "parameters": json.dumps(evaluation.get("parameters") or {}, sort_keys=True),
        **{key: evaluation.get(key) for key in ("images", "texts", "folds", "seconds")},
        **evaluation["metrics"],
    }


def aggregate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over the seeds of each row of the table.

    Returns KEYS, n (runs), seeds ("0, 1"), then for each metric of COLUMNS and wall_seconds its mean under the
    metric's key and its standard deviation (NaN with one run) under "<key> std". `parameters` separates rows only if
    one run was evaluated with several; otherwise it is empty.
    """
    metrics = [*(column.key for column in COLUMNS), "wall_seconds"]
    rows: list[dict] = []
    for key, group in by_parameters(frame).groupby(KEYS, sort=False):
        row = dict(zip(KEYS, key, strict=True)) | {"n": len(group), "seeds": ", ".join(map(str, sorted(group["seed"])))}
        for metric in metrics:
            row |= {metric: group[metric].mean(), f"{metric} std": group[metric].std(ddof=1)}
        rows.append(row)

    def rank(row: dict) -> tuple:
        setting = tuple(row[key] for key in Setting._fields)
        criterion = (row["criterion"] != "nns", row["criterion"], row["parameters"], row["reference"])
        return (*setting, *criterion, label_rank(row["label"]), row["variant"])

    columns = [*KEYS, "n", "seeds", *(name for metric in metrics for name in (metric, f"{metric} std"))]
    return pd.DataFrame(sorted(rows, key=rank), columns=columns)


def by_parameters(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with `parameters` as text if one run was evaluated with several, else empty.

    If one run was evaluated with several inductive reference sets, the set is named with the parameters.
    """
    frame = frame.copy()
    place = [*Setting._fields, "criterion", "reference"]
    for _, group in frame.groupby(place, sort=False):
        several = group.duplicated("run").any()
        texts = [parameters_text(line) if several else "" for _, line in group.iterrows()]
        if several and group["reference_set"].nunique() > 1:
            texts = [f"{text}, {name}".lstrip(", ") for text, name in zip(texts, group["reference_set"], strict=True)]
        frame.loc[group.index, "parameters"] = texts
    return frame


def parameters_text(line: pd.Series) -> str:
    """Criterion parameters as text: "beta 30.0"."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(line["parameters"]).items())


def by_setting(table: pd.DataFrame) -> dict[Setting, pd.DataFrame]:
    """The rows of each setting, in the order of the table."""
    groups = table.groupby(list(Setting._fields), sort=False)
    return {Setting(*key): group for key, group in groups}


def display(table: pd.DataFrame) -> pd.DataFrame:
    """The aggregated table as text: "mean ± std" (only the mean with one seed), missing values as a dash."""
    shown = table[KEYS].astype(str)
    shown["criterion"] = list(map(criterion_text, table["criterion"], table["parameters"]))
    shown["seeds"] = list(map(seeds_text, table["n"], table["seeds"]))
    for column in COLUMNS:
        shown[column.heading] = [
            spread_text(mean, std, column.decimals)
            for mean, std in zip(table[column.key], table[f"{column.key} std"], strict=True)
        ]
    shown["wall_seconds"] = [duration(seconds) for seconds in table["wall_seconds"]]
    unused = ["parameters"] + ([] if (table["variant"] != "").any() else ["variant"])
    return shown.drop(columns=unused).rename(columns=HEADINGS)


def results_table(table: pd.DataFrame, caption: str = "") -> ReportTable:
    """The aggregated table, for all output formats."""
    shown = display(table)
    return ReportTable.of(shown, caption, words=shown.columns.get_loc("seeds") + 1)


def short_table(table: pd.DataFrame, caption: str = "") -> ReportTable:
    """The aggregated table of one setting at the width of a terminal."""
    shown = display(table).assign(seeds=table["n"].astype(str))
    words = [name for name in ("loss", "variant", "criterion", "reference", "seeds") if name in shown]
    return ReportTable.of(shown[[*words, "i2t R@1", "t2i R@1", "rsum", "hs_sum"]], caption, words=len(words))


FAMILY = "family"
PAIRED_CAPTION = (
    "Paired tests of rsum: over test images (sign flips, 95 % bootstrap interval) and over seeds (t-test, its "
    "deviation no smaller than 100 / number of images); p corrected by Holm within each family. Only “apart”, both p "
    "below 0.05, is a claim."
)


def with_cases(runs: Sequence[Run], frame: pd.DataFrame) -> pd.DataFrame:
    """`results` of the runs with the columns series (title), case (the criterion in words) and parts.

    parts: (I,), the contributions of the images to rsum; None without values of single images.
    """
    evaluations = {run.path: run.evaluations for run in runs}
    frame = by_parameters(frame)
    series = [Series(*row).title for row in frame[list(Series._fields)].itertuples(index=False)]
    cases = list(map(criterion_text, frame["criterion"], frame["parameters"]))
    cases = [
        case if seen == "none" else f"{case}, {seen}" for case, seen in zip(cases, frame["reference"], strict=True)
    ]
    parts = [
        evaluations[run][name].get("contributions") for run, name in zip(frame["run"], frame["evaluation"], strict=True)
    ]
    return frame.assign(series=series, case=cases, parts=parts)


def intervals(runs: Sequence[Run], frame: pd.DataFrame) -> pd.DataFrame:
    """rsum of each loss under each criterion, with its interval over images and its range over seeds.

    One row per case: the setting, "series" (title), "criterion", "seeds", "rsum" (mean over the seeds), "least" and
    "most" of the seeds, "low" and "high" (95 % bootstrap interval over images of that mean; NaN without values of
    single images). frame: `results` of the runs.
    """
    keys, rows = [*Setting._fields, "series", "case"], []
    for key, group in with_cases(runs, frame).groupby(keys, sort=False):
        sums, parts = group["rsum"], group["parts"]
        low = high = np.array([math.nan])
        if parts.notna().all() and parts.map(len).nunique() == 1:
            low, high = bootstrap_interval(np.mean(parts.tolist(), axis=0)[:, None])
        rows.append((*key, len(sums), sums.mean(), low[0], high[0], sums.min(), sums.max()))
    columns = [*Setting._fields, "series", "criterion", "seeds", "rsum", "low", "high", "least", "most"]
    return pd.DataFrame(rows, columns=columns)


def paired(runs: Sequence[Run], frame: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> pd.DataFrame:
    """The paired tests that the evaluations allow: one row per pair, with the setting and the family it belongs to.

    There are two kinds of families: all losses measured under one criterion, and all criteria of one loss against
    plain search. Omitted are evaluations without values of single images, cases with a repeated seed, losses with
    different data, and criteria that rank exactly like another one of the family. frame: `results` of the runs.
    """
    columns = [*Setting._fields, FAMILY, *COMPARED]
    found = [pd.DataFrame(columns=columns)]
    for setting, rows in by_setting(with_cases(runs, frame)).items():
        known = rows[rows["parts"].notna()]
        for _, own in known.groupby(known["parts"].map(len)):  # two data sets may have one name
            for name, (members, pairs) in _families(_cases(own), recipes).items():
                found.append(compare(members, pairs).assign(**setting._asdict(), **{FAMILY: name}))
    return pd.concat(found[1:] or found, ignore_index=True)[columns]


Cases = dict[tuple[Series, str], Parts]  # of a series under a criterion


def _cases(rows: pd.DataFrame) -> Cases:
    """The contributions of each case by seed, largest mean first, without cases that repeat a seed."""
    cases = {
        (Series(*key[:-1]), key[-1]): dict(zip(group["seed"], map(np.array, group["parts"]), strict=True))
        for key, group in rows.groupby([*Series._fields, "case"], sort=False)
        if group["seed"].is_unique
    }
    means = {case: np.mean([part.mean() for part in parts.values()]) for case, parts in cases.items()}
    return {case: cases[case] for case in sorted(cases, key=lambda case: -means[case])}


def _families(cases: Cases, recipes: dict[Series, dict[str, str]]) -> dict[str, tuple[dict[str, Parts], list[Pair]]]:
    """Each family's cases by name, and its pairs; families without a pair are omitted."""
    found = {}
    for criterion in sorted({criterion for _, criterion in cases}, key=lambda name: (name != "nns", name)):
        members = {series: parts for (series, own), parts in cases.items() if own == criterion}
        pairs = [
            Pair(one.title, other.title)
            for one, other in itertools.combinations(members, 2)
            if set(members[one]) & set(members[other]) and not data_keys(differing([recipes[one], recipes[other]]))
        ]
        found[f"losses under {criterion}"] = ({one.title: parts for one, parts in members.items()}, pairs)
    for loss in sorted({series for series, _ in cases}, key=series_rank):
        ranked = {criterion: parts for (series, criterion), parts in cases.items() if series == loss}
        plain, copies = ranked.get("nns", {}), _copies(ranked)
        pairs = [
            Pair(name, "nns")
            for name, parts in ranked.items()
            if name != "nns" and name not in copies and set(parts) & set(plain)
        ]
        found[f"criteria after {loss.title}"] = (ranked, pairs)
    return {name: family for name, family in found.items() if family[1]}


def _copies(ranked: dict[str, Parts]) -> set[str]:
    """The cases with equal values on every image as one before them by name: two such cases are one test.

    Transductive QB-Norm, for example, is the inverted softmax of the same β.
    """
    copies = set()
    for one, other in itertools.combinations(sorted(ranked), 2):
        first, second = ranked[one], ranked[other]
        if first.keys() == second.keys() and all(np.array_equal(first[seed], second[seed]) for seed in first):
            copies.add(other)
    return copies


def conclusion(tests: pd.DataFrame) -> str:
    """The losses and criteria that are apart, in one sentence. tests: rows of `paired` of one setting."""
    if tests.empty or set(tests["outcome"]) == {TOO_FEW}:
        return f"No difference is a claim: that takes {FEWEST_SEEDS} seeds of each loss, and paired tests of both."
    apart = tests[tests["outcome"] == APART]
    if apart.empty:
        return "Nothing is apart: other test images or other seeds could turn every difference round."
    ahead = apart["one"].where(apart["difference"] > 0, apart["other"])
    behind = apart["other"].where(apart["difference"] > 0, apart["one"])
    families = apart[FAMILY].groupby(ahead + " above " + behind, sort=False)
    words = [f"{pair} ({', '.join(names)})" for pair, names in families]
    return f"Apart, over images and seeds: {'; '.join(words)}. All other differences may be chance."


def paired_table(tests: pd.DataFrame) -> ReportTable:
    """The paired tests of one setting as a table of text."""
    shown = pd.DataFrame(
        {
            "outcome": tests["outcome"],
            "one": tests["one"],
            "other": tests["other"],
            "family": tests[FAMILY],
            "difference": tests["difference"].map("{:+.1f}".format),
            "95 % over images": [
                f"{low:+.1f} to {high:+.1f}" for low, high in zip(tests["low"], tests["high"], strict=True)
            ],
            "p images": tests["p_images"].map(probability_text),
            "Holm images": tests["holm_images"].map(probability_text),
            "p seeds": tests["p_seeds"].map(probability_text),
            "Holm seeds": tests["holm_seeds"].map(probability_text),
            "seeds": tests["seeds"],
        }
    )
    return ReportTable.of(shown, PAIRED_CAPTION, words=4)
