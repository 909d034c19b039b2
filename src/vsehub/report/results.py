"""Results of runs: one line per evaluation, mean and sample standard deviation over seeds, and paired tests."""

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from vsehub.report.recipes import FINGERPRINT, NOISE, Series, differing, label_rank, series_rank
from vsehub.report.runs import Run
from vsehub.report.statistics import (
    APART,
    COMPARED,
    FEWEST_SEEDS,
    LEVEL,
    TOO_FEW,
    Contributions,
    bootstrap_interval,
    compare,
    holm,
    seeds_p,
)
from vsehub.report.tables import (
    ReportTable,
    collapsed_text,
    criterion_text,
    distinct_seeds,
    duration,
    probability_text,
    seeds_text,
    spread_text,
)


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


DIRECTIONS = {"i2t": "Image → text", "t2i": "Text → image"}
RANKS = (("r1", "R@1"), ("r5", "R@5"), ("r10", "R@10"), ("medr", "Med r"), ("meanr", "Mean r"))
# The columns of the tables: metric -> heading and number of decimals.
COLUMNS = {
    **{f"{side}/{rank}": (f"{side} {heading}", 1) for side in DIRECTIONS for rank, heading in RANKS},
    "rsum": ("rsum", 1),
    "hubness/hs_sum": ("hs_sum", 2),
}
TERMINAL = ("i2t/r1", "t2i/r1", "rsum", "hubness/hs_sum")  # the columns that fit into a terminal
MEASURED = [*COLUMNS, "wall_seconds"]
ROW = ["label", "variant", "criterion", "settings", "reference"]  # of the table of one setting
KEYS = ["dataset", "architecture", "label", "variant", "split", "protocol", "criterion", "settings", "reference"]
AS_TEXT = ("split", "protocol", "criterion", "reference", "reference_set")  # entries of an evaluation, for `results`
AS_FLAGS = ("tuned", "matching")
AS_VALUES = ("images", "texts", "folds", "seconds", "contributions", "histograms")
# Columns of `results` that are not written: the series' title, the criterion's parameters where they distinguish rows,
# the criterion in words, each image's contribution to rsum (None without) and the histograms of N_k
UNWRITTEN = ["series", "settings", "criterion_text", "contributions", "histograms"]


def results(runs: Sequence[Run], series_by_run: dict[str, Series]) -> pd.DataFrame:
    """One line per run and evaluation, with every metric in full precision; no lines if nothing was evaluated."""
    lines = []
    for run in runs:
        record, best, data = run.record, run.record.get("best") or {}, run.record.get("data") or {}
        metadata = {
            **series_by_run[run.path]._asdict(),
            "run": run.path,
            **{key: record[key] for key in ("name", "seed", "status")},
            "best_epoch": best.get("epoch"),
            "epochs": record.get("epochs"),
            "collapsed": bool(record.get("collapsed")),
            "wall_seconds": record.get("wall_seconds"),
            "train_fingerprint": (data.get("train") or {}).get("fingerprint"),
            "series": series_by_run[run.path].title,
        }
        for name, evaluation in run.evaluations.items():
            words = {key: str(evaluation.get(key)) for key in AS_TEXT}
            values = {key: evaluation.get(key) for key in AS_VALUES}
            parameters = json.dumps(evaluation.get("parameters") or {}, sort_keys=True)
            metrics = evaluation["metrics"]
            values |= {"parameters": parameters} | {key: bool(evaluation.get(key)) for key in AS_FLAGS}
            lines.append(metadata | {"evaluation": name, **words, **values, **metrics})
    needed = [*Setting._fields, "label", "variant", "criterion", "parameters", "reference", "reference_set", "run"]
    counted = ["seed", "evaluation", "best_epoch", "epochs", "collapsed", *AS_FLAGS]
    frame = pd.DataFrame(lines)
    frame = frame.reindex(columns=[*dict.fromkeys([*frame, *needed, *counted, *MEASURED, *UNWRITTEN])]).astype(
        dict.fromkeys(needed, str) | dict.fromkeys(MEASURED, float)
    )
    frame["settings"] = _distinguishing_settings(frame)
    frame["criterion_text"] = list(map(criterion_text, frame["criterion"], frame["settings"], frame["reference"]))
    return frame


def _distinguishing_settings(frame: pd.DataFrame) -> pd.Series:
    """The parameters as text, "beta 10", of criteria that were measured with several, else empty; "tuned" if tuned.

    Tuned parameters may differ between runs. If one run was measured with several inductive reference sets, the set is
    named with the parameters.
    """
    keys = [frame[name] for name in (*Setting._fields, "criterion", "reference")]
    texts = frame["parameters"].map(lambda text: ", ".join(f"{key} {value}" for key, value in json.loads(text).items()))
    tuned = frame["tuned"].astype(bool)  # without a line it has another type
    texts = texts.mask(tuned, "tuned")
    several = frame.groupby([*keys, frame["run"]])["reference_set"].transform("nunique") > 1
    several = several.groupby(keys).transform("any")
    texts = (texts + (", " + frame["reference_set"]).where(several, "")).str.removeprefix(", ")
    shown = texts.groupby(keys).transform("nunique") > 1
    return texts.where(shown | tuned, "")


def aggregate(frame: pd.DataFrame, columns: Sequence[str] = ()) -> pd.DataFrame:
    """Mean and sample standard deviation over the seeds of each row of the table.

    Returns dataset, architecture, label, variant, split, protocol, criterion, parameters (empty unless they distinguish
    rows), reference, n (runs), seeds (each once: "0, 1"), collapsed (number of runs), then for each metric of COLUMNS
    and `columns` and wall_seconds its mean under the metric's key and its standard deviation (NaN with one run) under
    "<key> std".
    """
    spread = {
        name: (metric, how)
        for metric in dict.fromkeys([*MEASURED, *columns])
        for name, how in ((metric, pd.Series.mean), (f"{metric} std", pd.Series.std))
    }
    counts = {"n": ("seed", "size"), "seeds": ("seed", distinct_seeds), "collapsed": ("collapsed", "sum")}
    table = frame.groupby(KEYS, sort=False).agg(**counts, **spread).reset_index()
    ranks = [
        (
            *(row[key] for key in Setting._fields),
            row["criterion"] != "nns",
            *(row[key] for key in ("criterion", "settings", "reference")),
            label_rank(row["label"]),
            row["variant"],
        )
        for row in table.to_dict("records")
    ]
    order = sorted(range(len(table)), key=ranks.__getitem__)
    return table.iloc[order].rename(columns={"settings": "parameters"})


def by_setting(table: pd.DataFrame) -> dict[Setting, pd.DataFrame]:
    """The rows of each setting, in the order of the table."""
    return {Setting(*key): group for key, group in table.groupby(list(Setting._fields), sort=False)}


MARKS = (
    "Bold: the best mean of a column (of hubness the nearest to 0, without matchings); †, from three seeds on: not "
    "shown to differ from the best by a paired t-test over seeds (p, corrected by Holm within the column, of at least "
    "0.05, or too few seeds in common)."
)


def results_table(
    table: pd.DataFrame, columns: Sequence[str] = (), caption: str = "", lines: pd.DataFrame | None = None
) -> ReportTable:
    """The aggregated rows of one setting as text: "mean ± std", only the mean with one seed, a dash without a value.

    columns: the metrics; without any, all of COLUMNS. lines: `results` of the setting, from which the best values are
    marked; without them the table is for a terminal: no marks and, without `columns`, only the columns TERMINAL.
    """
    shown = pd.DataFrame({"loss": [Series("", "", *names).title for names in table[["label", "variant"]].to_numpy()]})
    shown["criterion"] = list(map(criterion_text, table["criterion"], table["parameters"], table["reference"]))
    bold = []
    # a phone shows the first columns only
    for key in columns or (TERMINAL if lines is None else dict.fromkeys(["rsum", "hubness/hs_sum", *COLUMNS])):
        heading, decimals = COLUMNS.get(key, (key, 2))
        spread = zip(table[key], table[f"{key} std"], strict=True)
        shown[heading] = [spread_text(mean, std, decimals) for mean, std in spread]
        if lines is not None and len(table) > 1:
            best, not_worse = leading(table, lines, key)
            bold += [(row, len(shown.columns) - 1) for row in np.flatnonzero(best).tolist()]
            shown[heading] += np.where(not_worse, "†", "")
        if key == "rsum":
            shown[heading] += list(map(collapsed_text, table["collapsed"], table["n"]))
    seeds = list(map(seeds_text, table["n"], table["seeds"]))
    if lines is None:
        shown["seeds"] = [re.sub(r" \(.*\)", "", text) for text in seeds]
        return ReportTable.from_frame(shown, caption, text_left=2)
    shown["seeds"], shown["wall time"] = seeds, list(map(duration, table["wall_seconds"]))
    return ReportTable.from_frame(shown, caption, text_left=2, text_right=2)._replace(bold=bold)


def leading(table: pd.DataFrame, lines: pd.DataFrame, key: str) -> tuple[np.ndarray, np.ndarray]:
    """Masks of the rows of one setting: the best mean of a metric, and other rows that no test shows to be worse.

    Ranks are better if smaller, hubness if nearer to 0; that of matchings, which limit it, is not compared. lines:
    `results` of the setting; a seed with several runs counts as their mean. The test is that of `seeds_p`, with Holm's
    correction over the other rows; if none of these has three seeds in common with the best row, no row is in the
    second mask.
    """
    smaller = key.endswith(("/medr", "/meanr")) or (key.startswith("hubness/") and not key.endswith("/share_1"))
    worth = -table[key].abs() if smaller else table[key]
    if key.startswith("hubness/"):
        worth = worth.mask(table["criterion"].isin(lines.loc[lines["matching"], "criterion"]))
    best = (worth == worth.max()).to_numpy()
    step = 1.0 if key.endswith("/medr") else 0.01 if key.startswith("hubness/") else 100 / lines["images"].min()
    by_seed = {row: group.groupby("seed")[key].mean() for row, group in lines.groupby(ROW)}
    rows = [by_seed[row] for row in table.rename(columns={"parameters": "settings"})[ROW].itertuples(False, None)]
    leads = [rows[best.argmax()] - row for row in rows]
    tested = worth.notna().to_numpy() & ~best
    p = holm([seeds_p(lead.dropna(), step) if test else math.nan for test, lead in zip(tested, leads, strict=True)])
    not_worse = tested & ~(p < LEVEL)
    return best, not_worse & np.isfinite(p).any()


def intervals(frame: pd.DataFrame) -> pd.DataFrame:
    """rsum of each loss under each criterion, with its interval over images and its range over seeds.

    One row per series and criterion of `results`: "seeds", "rsum" (mean over the seeds), "least" and "most" of the
    seeds, "low" and "high" (95 % bootstrap interval over images of that mean; NaN without values of single images), and
    "mark", which says how many of the runs collapsed.
    """
    rows = []
    for (series, criterion), group in frame.groupby(["series", "criterion_text"], sort=False):
        sums = group["rsum"]
        row = {
            "series": series,
            "criterion": criterion,
            "seeds": group["seed"].nunique(),
            "rsum": sums.mean(),
            "low": math.nan,
            "high": math.nan,
            "least": sums.min(),
            "most": sums.max(),
            "mark": collapsed_text(group["collapsed"].sum(), len(group)),
        }
        if group["contributions"].notna().all():
            low, high = bootstrap_interval(np.mean(group["contributions"].tolist(), axis=0)[:, None])
            row |= {"low": low[0], "high": high[0]}
        rows.append(row)
    return pd.DataFrame(rows)


PAIRED_CAPTION = (
    "Paired tests of rsum: over test images (sign flips, 95 % bootstrap interval) and over seeds (t-test, its "
    "deviation no smaller than 100 / number of images); p corrected by Holm within each family. Only “apart”, both p "
    "below 0.05, is a claim."
)


def paired_tests(frame: pd.DataFrame, recipes: dict[Series, dict[str, str]]) -> pd.DataFrame:
    """The paired tests that the evaluations allow: one row per pair, with the setting and the family it belongs to.

    There are two kinds of families: all losses measured under one criterion, and all criteria of one loss against plain
    search. Omitted are evaluations without values of single images, cases (a loss under a criterion) with a repeated
    seed, losses with different data, and criteria that rank exactly like another one of the family. frame: `results` of
    the runs.
    """
    columns = [*Setting._fields, "family", *COMPARED]
    tests = [pd.DataFrame(columns=columns)]
    for setting, rows in by_setting(frame[frame["contributions"].notna()]).items():
        cases: dict[tuple[Series, str], Contributions] = {}
        for key, group in rows.groupby([*Series._fields, "criterion_text"], sort=False):
            if group["seed"].is_unique:
                by_seed = dict(zip(group["seed"], map(np.array, group["contributions"]), strict=True))
                cases[Series(*key[:-1]), key[-1]] = by_seed
        means = {case: np.mean([values.mean() for values in by_seed.values()]) for case, by_seed in cases.items()}
        cases = {case: cases[case] for case in sorted(cases, key=lambda case: -means[case])}
        for name, members, pairs in _families(cases, recipes):
            if pairs:
                tests.append(compare(members, pairs).assign(**setting._asdict(), family=name))
    return pd.concat(tests[1:] or tests, ignore_index=True)[columns]


def _families(
    cases: dict[tuple[Series, str], Contributions], recipes: dict[Series, dict[str, str]]
) -> Iterator[tuple[str, dict[str, Contributions], list[tuple[str, str]]]]:
    """Yields each family's name, the contributions of its members by name, and the pairs of names to test."""
    for criterion in sorted({criterion for _, criterion in cases}, key=lambda name: (name != "nns", name)):
        members = {series: by_seed for (series, name), by_seed in cases.items() if name == criterion}
        pairs = [
            (first.title, other.title)
            for first, other in itertools.combinations(members, 2)
            if set(members[first]) & set(members[other]) and _same_data(recipes[first], recipes[other])
        ]
        yield f"losses under {criterion}", {series.title: by_seed for series, by_seed in members.items()}, pairs
    for loss in sorted({series for series, _ in cases}, key=series_rank):
        ranked = {criterion: by_seed for (series, criterion), by_seed in cases.items() if series == loss}
        plain = ranked.get("nns", {})
        # Of criteria that rank equally only one is tested: transductive QB-Norm equals the inverted softmax of its β.
        as_text = {
            name: str([(seed, by_seed[seed].tolist()) for seed in sorted(by_seed)]) for name, by_seed in ranked.items()
        }
        distinct = {as_text[name]: name for name in sorted(ranked, reverse=True)}.values()
        names = [name for name in ranked if name != "nns" and name in distinct]
        pairs = [(name, "nns") for name in names if set(ranked[name]) & set(plain)]
        yield f"criteria after {loss.title}", ranked, pairs


def _same_data(first: dict[str, str], other: dict[str, str]) -> bool:
    return not any(key == NOISE or key.startswith(FINGERPRINT) for key in differing([first, other]))


def conclusion(tests: pd.DataFrame) -> str:
    """The losses and criteria that are apart, in one sentence. tests: rows of `paired_tests` of one setting."""
    if set(tests["outcome"]) <= {TOO_FEW}:
        return f"With fewer than {FEWEST_SEEDS} seeds of each loss no difference can be claimed."
    apart = tests[tests["outcome"] == APART]
    above = apart["one"] + " above " + apart["other"]
    above = above.where(apart["difference"] > 0, apart["other"] + " above " + apart["one"])
    words = [f"{pair} ({', '.join(names)})" for pair, names in apart["family"].groupby(above, sort=False)]
    return f"Apart, over images and seeds: {'; '.join(words) or 'nothing'}. All other differences may be chance."


def paired_table(tests: pd.DataFrame) -> ReportTable:
    """The paired tests of one setting as a table of text."""
    shown = tests[["outcome", "one", "other", "family"]].copy()
    shown["difference"] = tests["difference"].map("{:+.1f}".format)
    shown["95 % over images"] = tests["low"].map("{:+.1f} to ".format) + tests["high"].map("{:+.1f}".format)
    for name in ("images", "seeds"):
        shown[f"p {name}"] = tests[f"p_{name}"].map(probability_text)
        shown[f"Holm {name}"] = tests[f"holm_{name}"].map(probability_text)
    shown["seeds"] = tests["seeds"]
    return ReportTable.from_frame(shown, PAIRED_CAPTION, text_left=4)
