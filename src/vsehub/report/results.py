"""Results of runs: one line per evaluation, mean and sample standard deviation over seeds, and paired tests."""

import itertools
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from vsehub.report.recipes import Series, data_keys, differing, label_rank
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


_UNDER, _AFTER = "losses under ", "criteria after "  # begin the names of families


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
    if not lines:
        return pd.DataFrame(columns=[*KEYS, "seed", "run", "wall_seconds", *(column.key for column in COLUMNS)])
    frame = pd.DataFrame(lines)
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
    parameters = dict(evaluation.get("parameters") or {})
    if "precision" in evaluation:  # a run measured in both precisions has a row for each
        parameters["precision"] = evaluation["precision"]
    return {
        "evaluation": name,
        **{key: str(value) for key, value in facts.items()},
        "parameters": json.dumps(parameters, sort_keys=True),
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
    columns = [*KEYS, "n", "seeds", *(name for metric in metrics for name in (metric, f"{metric} std"))]

    def rank(row: dict) -> tuple:
        setting = tuple(row[key] for key in Setting._fields)
        criterion = (row["criterion"] != "nns", row["criterion"], row["parameters"], row["reference"])
        return (*setting, *criterion, label_rank(row["label"]), row["variant"])

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
    shown = display(table)
    words = ["loss", *(["variant"] if "variant" in shown else []), "criterion", "reference", "seeds"]
    numbers = [f"{side} R@1" for side in DIRECTIONS] + ["rsum", "hs_sum"]
    shown["seeds"] = table["n"].astype(str)
    return ReportTable.of(shown[[*words, *numbers]], caption, words=len(words))


FAMILY = "family"
PAIRED_CAPTION = (
    "Paired tests of rsum: over test images (sign flips, 95 % bootstrap interval) and over seeds (t-test, its "
    "deviation no smaller than 100 / number of images); p corrected by Holm within each family. Only “apart”, both p "
    "below 0.05, is a claim."
)


def paired(
    runs: Sequence[Run], series: dict[str, Series], frame: pd.DataFrame, recipes: dict[Series, dict[str, str]]
) -> pd.DataFrame:
    """The paired tests that the evaluations allow: one row per pair, with the setting and the family it belongs to.

    There are two kinds of families: all losses measured under one criterion, and all criteria of one loss against
    plain search. Omitted are evaluations without values of single images, cases with a repeated seed, losses with
    different data, and criteria that rank exactly like another one of the family. frame: `results` of the runs.
    """
    found = []
    for setting, rows in by_setting(by_parameters(frame)).items():
        cases = _cases(runs, series, rows)
        for size in sorted({_images(parts) for parts in cases.values()}):  # two data sets may have one name
            own = {case: parts for case, parts in cases.items() if _images(parts) == size}
            for name, (members, pairs) in _families(own, recipes).items():
                found.append(compare(members, pairs).assign(**setting._asdict(), **{FAMILY: name}))
    columns = [*Setting._fields, FAMILY, *COMPARED]
    return pd.concat(found, ignore_index=True)[columns] if found else pd.DataFrame(columns=columns)


def intervals(runs: Sequence[Run], series: dict[str, Series], frame: pd.DataFrame) -> pd.DataFrame:
    """rsum of each loss under each criterion, with its interval over images and its range over seeds.

    A row for each case with values of single images: the setting, "series" (title), "criterion", "seeds", "rsum" (mean
    over the seeds), "low" and "high" (95 % bootstrap interval over images of that mean), "least" and "most" of the
    seeds. frame: `results` of the runs.
    """
    found = []
    for setting, rows in by_setting(by_parameters(frame)).items():
        for case, parts in _cases(runs, series, rows).items():
            values = np.stack(list(parts.values()))  # (S, I)
            (low,), (high,) = bootstrap_interval(values.mean(axis=0)[:, None])
            sums = values.mean(axis=1)
            own = {"seeds": len(sums), "rsum": sums.mean(), "low": low, "high": high}
            own |= {"least": sums.min(), "most": sums.max()}
            found.append({**setting._asdict(), "series": case.series.title, "criterion": case.criterion} | own)
    columns = [*Setting._fields, "series", "criterion", "seeds", "rsum", "low", "high", "least", "most"]
    return pd.DataFrame(found, columns=columns)


def conclusion(tests: pd.DataFrame) -> str:
    """What is apart from what, in one sentence. tests: rows of `paired` of one setting."""
    if tests.empty or set(tests["outcome"]) == {TOO_FEW}:
        return f"No difference is a claim: that takes {FEWEST_SEEDS} seeds of each loss, and paired tests of both."
    apart = tests[tests["outcome"] == APART]
    if apart.empty:
        return "Nothing is apart: other test images or other seeds could turn every difference round."
    losses, after = apart[FAMILY].str.startswith(_UNDER), apart[FAMILY].str.startswith(_AFTER)
    words = []
    for family, rows in list(apart[losses].groupby(FAMILY, sort=False))[:1]:  # the others are in the table of tests
        ahead = _ahead(rows)
        lists = [f"{one} above {', '.join(rest)}" for one, rest in ahead.items()]
        words.append(f"{family.removeprefix('losses ')}, {'; '.join(lists)}")
    named = apart[after].assign(loss=apart[FAMILY].str.removeprefix(_AFTER))
    found: dict[tuple[str, str], list[str]] = {}
    for loss, rows in named.groupby("loss", sort=False):
        for one, rest in _ahead(rows).items():
            for other in rest:
                found.setdefault((one, other), []).append(str(loss))
    words += [f"{one} above {other} after {', '.join(own)}" for (one, other), own in found.items()]
    return f"Apart, over images and seeds: {'. '.join(words)}. All other differences may be chance."


def _ahead(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Each case that is ahead of others, with these."""
    found: dict[str, list[str]] = {}
    for _, row in rows.iterrows():
        one, other = (row["one"], row["other"]) if row["difference"] > 0 else (row["other"], row["one"])
        found.setdefault(one, []).append(other)
    return found


class Case(NamedTuple):
    """A case of a comparison: the runs of a series under one criterion."""

    series: Series
    criterion: str


def _cases(runs: Sequence[Run], series: dict[str, Series], rows: pd.DataFrame) -> dict[Case, Parts]:
    """Each case's contributions by seed, ordered by mean rsum, largest first."""
    evaluations = {run.path: run.evaluations for run in runs}
    cases: dict[Case, dict[int, np.ndarray]] = {}
    twice = set()
    for _, row in rows.sort_values("rsum", ascending=False, kind="stable").iterrows():
        contributions = evaluations[row["run"]][row["evaluation"]].get("contributions")
        reference = "" if row["reference"] == "none" else f", {row['reference']}"
        case = Case(series[row["run"]], criterion_text(row["criterion"], row["parameters"]) + reference)
        if contributions:
            parts = cases.setdefault(case, {})
            twice |= {case} if row["seed"] in parts else set()
            parts[row["seed"]] = np.array(contributions)
    means = {case: np.mean([part.mean() for part in parts.values()]) for case, parts in cases.items()}
    return {case: cases[case] for case in sorted(cases, key=lambda case: -means[case]) if case not in twice}


def _families(
    cases: Mapping[Case, Parts], recipes: dict[Series, dict[str, str]]
) -> dict[str, tuple[dict[str, Parts], list[Pair]]]:
    """Each family's cases by name, and its pairs; families without a pair are omitted."""
    criteria = sorted({case.criterion for case in cases}, key=lambda name: (name != "nns", name))
    losses = sorted({case.series for case in cases}, key=lambda one: (label_rank(one.label), one.variant))
    found = {}
    for criterion in criteria:
        members = {case.series: parts for case, parts in cases.items() if case.criterion == criterion}
        pairs = [
            Pair(one.title, other.title)
            for one, other in itertools.combinations(members, 2)
            if set(members[one]) & set(members[other]) and not data_keys(differing([recipes[one], recipes[other]]))
        ]
        found[f"{_UNDER}{criterion}"] = ({one.title: parts for one, parts in members.items()}, pairs)
    for loss in losses:
        ranked = {case.criterion: parts for case, parts in cases.items() if case.series == loss}
        plain, distinct = ranked.get("nns", {}), _without_copies(ranked)
        pairs = [Pair(name, "nns") for name, parts in distinct.items() if name != "nns" and set(parts) & set(plain)]
        found[f"{_AFTER}{loss.title}"] = (ranked, pairs)
    return {name: family for name, family in found.items() if family[1]}


def _without_copies(members: dict[str, Parts]) -> dict[str, Parts]:
    """The cases without duplicates: two cases with equal values on every image are one test.

    Transductive QB-Norm, for example, is the inverted softmax of the same β.
    """
    kept: dict[str, Parts] = {}
    for name, parts in sorted(members.items()):
        copied = any(
            parts.keys() == other.keys() and all(np.array_equal(part, other[seed]) for seed, part in parts.items())
            for other in kept.values()
        )
        if name == "nns" or not copied:
            kept[name] = parts
    return {name: parts for name, parts in members.items() if name in kept}


def _images(parts: Parts) -> int:
    """The number of images in the contributions of a case."""
    return len(next(iter(parts.values())))


def paired_table(tests: pd.DataFrame) -> ReportTable:
    """The paired tests of one setting as a table of text."""
    rows = [
        [
            row["outcome"],
            row["one"],
            row["other"],
            row[FAMILY],
            f"{row['difference']:+.1f}",
            f"{row['low']:+.1f} to {row['high']:+.1f}",
            *(probability_text(row[name]) for name in ("p_images", "holm_images", "p_seeds", "holm_seeds")),
            str(row["seeds"]),
        ]
        for _, row in tests.iterrows()
    ]
    head = ["outcome", "one", "other", "family", "difference", "95 % over images"]
    head += ["p images", "Holm", "p seeds", "Holm", "seeds"]
    starts = (tests[FAMILY] != tests[FAMILY].shift()).tolist()
    return ReportTable(head, rows, PAIRED_CAPTION, words=4, starts=starts)
