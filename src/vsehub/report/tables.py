"""Tables of evaluations: one line an evaluation, then mean and sample standard deviation over the seeds."""

import json
from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from vsehub.report.recipes import Series, label_rank
from vsehub.report.runs import Run

ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "[": "{[}",  # at the start of a line it would be an argument of the rule or the line before
    "]": "{]}",
    "*": "{*}",  # likewise
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "–": "--",
    "→": r"$\to$",
    "−": "$-$",
    "α": r"$\alpha$",
    "β": r"$\beta$",
    "τ": r"$\tau$",
    "γ": r"$\gamma$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "≥": r"$\ge$",
    "·": r"$\cdot$",
}


def latex(frame: pd.DataFrame, caption: str, numeric: Sequence[str] = ()) -> str:
    """A `table*` of a frame of text; `numeric` columns are aligned right. Needs \\usepackage{booktabs}."""
    columns = "".join("r" if name in set(numeric) else "l" for name in frame.columns)
    lines = [_line(frame.columns), r"\midrule", *(_line(row) for row in frame.itertuples(index=False, name=None))]
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
            rf"\caption{{{latex_text(caption)}}}",
            rf"\begin{{tabular}}{{{columns}}}",
            r"\toprule",
            *lines,
            r"\bottomrule",
            r"\end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def _line(cells: Sequence[object]) -> str:
    return " & ".join(map(latex_text, cells)) + r" \\"


def latex_text(text: object) -> str:
    """Text that stays text in LaTeX, on one line."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(str(text).split()))


KEYS = ["dataset", "architecture", "label", "variant", "split", "protocol", "criterion", "parameters", "reference"]


class Setting(NamedTuple):
    """What the rows of one comparison share: figures under two settings are never compared."""

    dataset: str
    architecture: str
    split: str
    protocol: str

    @property
    def title(self) -> str:
        """The setting in words."""
        return f"{self.dataset} · {self.architecture} · {self.split} split · protocol {self.protocol}"


class Column(NamedTuple):
    """A figure of the tables: its key in the results, its heading and the decimals it is printed with."""

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
    """One line a run and evaluation, with every metric in full precision; no lines when nothing was evaluated."""
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
    return {
        "evaluation": name,
        **{key: str(value) for key, value in facts.items()},
        "parameters": json.dumps(evaluation.get("parameters") or {}, sort_keys=True),
        **{key: evaluation.get(key) for key in ("images", "texts", "folds", "seconds")},
        **evaluation["metrics"],
    }


def aggregate(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and sample standard deviation over the seeds of each row of the table.

    Returns KEYS, n (runs), seeds ("0, 1"), then for each figure of COLUMNS and wall_seconds its mean under the
    figure's key and its standard deviation (NaN with one run) under "<key> std". `parameters` parts rows only where
    one run was evaluated under several; else it is empty.
    """
    figures = [*(column.key for column in COLUMNS), "wall_seconds"]
    rows: list[dict] = []
    for key, group in parted(frame).groupby(KEYS, sort=False):
        row = dict(zip(KEYS, key, strict=True)) | {"n": len(group), "seeds": ", ".join(map(str, sorted(group["seed"])))}
        for figure in figures:
            row |= {figure: group[figure].mean(), f"{figure} std": group[figure].std(ddof=1)}
        rows.append(row)
    columns = [*KEYS, "n", "seeds", *(name for figure in figures for name in (figure, f"{figure} std"))]
    return pd.DataFrame(sorted(rows, key=_row_rank), columns=columns)


def parted(frame: pd.DataFrame) -> pd.DataFrame:
    """The results with `parameters` as text where one run was evaluated under several, and empty elsewhere.

    Where one run was evaluated against several inductive reference sets, the set is named with the parameters.
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
    """Criterion parameters as a reader sees them: "beta 30.0"."""
    return ", ".join(f"{key} {value}" for key, value in json.loads(line["parameters"]).items())


def _row_rank(row: dict) -> tuple:
    setting = tuple(row[key] for key in Setting._fields)
    criterion = (row["criterion"] != "nns", row["criterion"], row["parameters"], row["reference"])
    return (*setting, *criterion, label_rank(row["label"]), row["variant"])


def by_setting(table: pd.DataFrame) -> dict[Setting, pd.DataFrame]:
    """The rows of each setting, in the order of the table."""
    groups = table.groupby(list(Setting._fields), sort=False)
    return {Setting(*key): group for key, group in groups}


def display(table: pd.DataFrame) -> pd.DataFrame:
    """The aggregated table as text: "mean ± std" (the mean alone with one seed), absent figures as a dash."""
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


def criterion_text(criterion: str, parameters: str) -> str:
    """A criterion with the parameters that part it from others: "is (beta 10)"."""
    return f"{criterion} ({parameters})" if parameters else criterion


def seeds_text(n: int, seeds: str) -> str:
    """How many seeds and which: "3 (0, 1, 2)"."""
    return f"{n} ({seeds})"


def spread_text(mean: float, std: float, decimals: int) -> str:
    """ "45.3 ± 0.8", "45.3" without a standard deviation, "–" without a mean."""
    if pd.isna(mean):
        return "–"
    return f"{mean:.{decimals}f}" + ("" if pd.isna(std) else f" ± {std:.{decimals}f}")


def duration(seconds: float | None) -> str:
    """Seconds as a reader says them: "61 s", "14.2 min", "5.3 h"."""
    if pd.isna(seconds):
        return "–"
    for unit, length in (("h", 3600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} s"


def markdown(table: pd.DataFrame) -> str:
    """A GitHub table of a frame of text; figures are aligned right, and no cell can break the table or hold HTML."""

    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(map(markdown_text, cells)) + " |"

    numeric = {column.heading for column in COLUMNS}
    rule = "|" + "|".join(" ---: " if name in numeric else " --- " for name in table.columns) + "|"
    return "\n".join([line(table.columns), rule, *map(line, table.itertuples(index=False, name=None))]) + "\n"


def markdown_text(text: object) -> str:
    """Text that stays text in Markdown."""
    text = " ".join(str(text).split())
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")
