"""Claims held against results, and the parts of pages that commands write.

Claims are expected.csv, a row each; the results are tables with a row a run and evaluation.
"""

import math
from pathlib import Path

import pandas as pd

from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.statistics import FEWEST_SEEDS, LEVEL, holm, seeds_p
from vsehub.report.tables import ReportTable, probability_text, spread_text

START, END = "<!-- generated{} -->", "<!-- end of the generated part -->"
HOLDS, AGAINST, OPEN = "holds over seeds", "contradicted over seeds", "not told apart"
OUTCOMES = (HOLDS, OPEN, AGAINST, "not measured", "too few seeds")
RULE = (
    "paired t-tests over seeds, corrected by Holm over the table; deviations below one step of the metric (rsum: 100 / "
    "images) are raised to it. Results apply to other trainings on these test images"
)
STEPS = {"hs_sum": 0.01, "plateau": 1.0, "plateau_before_decay": 1.0}  # of recalls and rsum: 100 / images


def renew(page: Path, text: str, name: str = "") -> None:
    """Put `text` between the marks of a page: `<!-- generated: NAME -->`, or `<!-- generated -->` without a name.

    Raises InputError where the page lacks the marks.
    """
    mark = START.format(f": {name}" if name else "")
    before, found, rest = page.read_text().partition(mark)
    require(bool(found) and END in rest, f"{page} has no part between {mark} and {END}; put these two lines in")
    write_text(page, f"{before}{mark}\n\n{text.strip()}\n\n{END}{rest.partition(END)[2]}")


def read_expected(folder: Path) -> pd.DataFrame:
    """A study's claims, a row each."""
    return pd.read_csv(folder / "expected.csv", dtype={"higher": str, "lower": str})


def judged(
    results: pd.DataFrame, expected: pd.DataFrame, case: str = "loss", images: int | None = None
) -> pd.DataFrame:
    """The claims with what was measured: means, difference, its deviation, seeds, p, Holm's p, outcome.

    results: one row a run, `case` naming what is compared, `seed` and the metrics in columns. Only seeds that both
    sides have count. images: of the test split, where `results` has no such column. The rule is RULE.
    """
    return concluded(measured(results, expected, case, images))


def measured(results: pd.DataFrame, expected: pd.DataFrame, case: str, images: int | None = None) -> pd.DataFrame:
    """The claims with all but Holm's p and the outcome."""
    images = int(results["images"].min()) if images is None else images
    lines = []
    for _, row in expected.iterrows():
        values = results.set_index("seed")
        one, other = (values.loc[values[case] == row[side], row["metric"]].dropna() for side in ("higher", "lower"))
        repeated = one.index.has_duplicates or other.index.has_duplicates
        require(not repeated, f"{row['higher']} or {row['lower']} has a seed twice; choose one evaluation of each run")
        common = one.index.intersection(other.index)
        one, other = one[common], other[common]
        differences = one - other
        lines.append(
            {
                "measured_higher": one.mean(),
                "measured_lower": other.mean(),
                "difference": differences.mean(),
                "deviation": differences.std(),
                "seeds": len(common),
                "p": seeds_p(differences, STEPS.get(row["metric"], 100 / images)),
            }
        )
    return pd.concat([expected.reset_index(drop=True), pd.DataFrame(lines)], axis=1)


def concluded(frame: pd.DataFrame) -> pd.DataFrame:
    """The measured claims, one family, with Holm's p and the outcome."""
    frame = frame.assign(holm=holm(frame["p"].to_numpy(dtype=float)))
    return frame.assign(outcome=[outcome(row) for _, row in frame.iterrows()])


def outcome(row: pd.Series) -> str:
    """Result of the test over seeds for the claim that the difference is positive."""
    if row["seeds"] < FEWEST_SEEDS:
        return "not measured" if row["seeds"] == 0 else "too few seeds"
    if not row["holm"] < LEVEL:
        return OPEN
    return HOLDS if row["difference"] > 0 else AGAINST


def judged_table(frame: pd.DataFrame) -> ReportTable:
    """The judged claims: published values, the measured difference, and p corrected by Holm."""
    rows = []
    for _, row in frame.iterrows():
        published = number(row["published_higher"]), number(row["published_lower"])
        cells = [row["claim"], row["outcome"], "" if published == ("–", "–") else " / ".join(published)]
        rows.append([*cells, spread(row["difference"], row["deviation"]), probability_text(row["holm"])])
    head = ["claim", "outcome", "published", "measured difference", "Holm"]
    return ReportTable(head, rows, f"Claims: {RULE}.", words=2)


def spread(difference: float, deviation: float) -> str:
    """ "+1.2 ± 0.4", without a deviation "+1.2", a dash for none."""
    return number(difference, "+") + ("" if math.isnan(deviation) else f" ± {deviation:.1f}")


def over_seeds(values: pd.Series, digits: int = 1) -> str:
    """ "326.4 ± 3.7", the mean and sample deviation; the mean alone of one value, a dash of none."""
    return spread_text(values.mean(), values.std(), digits)


def number(value: float, sign: str = "") -> str:
    """A value to one decimal, or a dash."""
    return "–" if pd.isna(value) else f"{value:{sign}.1f}"


def verdict(frame: pd.DataFrame, names: bool = True) -> str:
    """The number of claims of each outcome in one sentence. names: name those that hold or are contradicted."""
    told = []
    for kind in OUTCOMES:
        claims = list(frame.loc[frame["outcome"] == kind, "claim"])
        named = f" ({'; '.join(claims)})" if names and kind in (HOLDS, AGAINST) else ""
        words = kind if len(claims) == 1 else kind.replace("holds", "hold")
        told += [f"{len(claims)} {words}{named}"] if claims else []
    ahead = int((frame["difference"] > 0).sum())
    known = int(frame["difference"].notna().sum())
    return f"Of {len(frame)} claims: {', '.join(told)}. The mean difference has the claimed sign in {ahead} of {known}."


def tell(folder: Path, frame: pd.DataFrame, case: str) -> None:
    """Write the README's parts "verdict", "claims" and "cases".

    frame: a row a run, in the order of the table: `case`, seed, images, best_epoch, val_rsum, rsum and hs_sum.
    """
    claims = judged(frame, read_expected(folder), case)
    renew(folder / "README.md", judged_table(claims).markdown(), "claims")
    renew(folder / "README.md", verdict(claims), "verdict")
    renew(folder / "README.md", cases_table(frame, case).markdown(), "cases")


def cases_table(frame: pd.DataFrame, case: str) -> ReportTable:
    """Means over the seeds with their sample deviation, a row a case."""
    rows = [
        [
            str(name),
            str(len(own)),
            *(over_seeds(own[one]) for one in ("val_rsum", "rsum", "hs_sum")),
            f"{own['best_epoch'].mean():.1f}",
        ]
        for name, own in frame.groupby(case, sort=False)
    ]
    head = [case, "seeds", "val rsum", "test rsum", "hs_sum", "best epoch"]
    return ReportTable(head, rows, "Means over the seeds ± one sample deviation; epochs count from 0.", words=1)
