"""Claims held against results, and the parts of pages that commands write.

Claims are expected.csv, a row each; the results are tables with a row a run and evaluation.
"""

import math
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
from scipy import optimize, stats

from vsehub.checks import require
from vsehub.io.files import write_text
from vsehub.report.statistics import FEWEST_SEEDS, LEVEL, holm, seeds_p
from vsehub.report.tables import ReportTable, probability_text, spread_text

START, END = "<!-- generated{} -->", "<!-- end of the generated part -->"
HOLDS, AGAINST, OPEN = "holds over seeds", "contradicted over seeds", "undecided"
EQUAL, UNNAMED = "equal within ±2 rsum", "–"
OUTCOMES = {  # in a sentence, of a claim and of several
    HOLDS: ("holds over seeds", "hold over seeds"),
    AGAINST: (f"is {AGAINST}", f"are {AGAINST}"),
    EQUAL: (f"is {EQUAL}", f"are {EQUAL}"),
    OPEN: (f"is {OPEN}", f"are {OPEN}"),
    "not measured": ("is not measured", "are not measured"),
    "too few seeds": ("has too few seeds", "have too few seeds"),
}
MARGIN = 2.0  # of rsum: smaller differences count as none
RULE = (
    "mean difference (positive: as claimed) ± standard deviation over seeds [95 % interval], and p of the paired "
    "t-test, not corrected. A claim holds, or is contradicted, if p is below 0.05 after Holm's correction over the "
    "judged claims. Both sides are equal if two one-sided tests, corrected in the same way, reject differences of 2 "
    "rsum or more. Otherwise the claim is undecided. A dash: the claim is not judged. In the tests a standard "
    "deviation is at least one step of the metric (rsum: 100 / images). Results apply to other trainings, measured on "
    "these test data"
)
STEPS = {"hs_sum": 0.01, "plateau": 1.0, "plateau_before_decay": 1.0}  # of recalls and rsum: 100 / images


def renew(page: Path, text: str, name: str = "") -> None:
    """Put `text` between the marks of a page: `<!-- generated: NAME -->`, or `<!-- generated -->` without a name.

    Raises InputError where the page lacks the marks.
    """
    mark = START.format(f": {name}" if name else "")
    before, written, rest = page.read_text().partition(mark)
    require(bool(written) and END in rest, f"{page} has no part between {mark} and {END}; put these two lines in")
    write_text(page, f"{before}{mark}\n\n{text.strip()}\n\n{END}{rest.partition(END)[2]}")


def read_expected(folder: Path) -> pd.DataFrame:
    """A study's claims, a row each. `named`: whether the claim is judged; all are, where the file lacks that column."""
    frame = pd.read_csv(folder / "expected.csv", dtype={"higher": str, "lower": str})
    return frame if "named" in frame else frame.assign(named=True)


def judged(
    results: pd.DataFrame, expected: pd.DataFrame, case: str = "loss", images: int | None = None
) -> pd.DataFrame:
    """The claims with what was measured: means, difference, its deviation and interval, seeds, p, Holm's p, outcome.

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
        first, second = (values.loc[values[case] == row[side], row["metric"]].dropna() for side in ("higher", "lower"))
        repeated = first.index.has_duplicates or second.index.has_duplicates
        require(not repeated, f"{row['higher']} or {row['lower']} has a seed twice; choose one evaluation of each run")
        common = first.index.intersection(second.index)
        first, second = first[common], second[common]
        differences = first - second
        step = STEPS.get(row["metric"], 100 / images)
        lines.append(
            {
                "measured_higher": first.mean(),
                "measured_lower": second.mean(),
                "difference": differences.mean(),
                "deviation": differences.std(),
                "seeds": len(common),
                "p": seeds_p(differences, step),
            }
            | interval(differences, step, row["metric"])
        )
    return pd.concat([expected.reset_index(drop=True), pd.DataFrame(lines)], axis=1)


def interval(differences: pd.Series, step: float, metric: str) -> dict[str, float]:
    """The 95 % interval `low`, `high` of the mean, and `p_equal` of two one-sided tests against ±2 rsum, or NaN."""
    count = len(differences)
    if count < FEWEST_SEEDS:
        return {"low": math.nan, "high": math.nan, "p_equal": math.nan}
    mean, error = differences.mean(), max(differences.std(), step) / count**0.5
    width = error * stats.t.ppf(0.975, count - 1)
    p_equal = float(stats.t.sf((MARGIN - abs(mean)) / error, count - 1)) if metric == "rsum" else math.nan
    return {"low": mean - width, "high": mean + width, "p_equal": p_equal}


def concluded(frame: pd.DataFrame) -> pd.DataFrame:
    """The measured claims with Holm's p, over the named, and the outcome."""
    named = frame["named"].astype(bool)
    frame = frame.assign(**{key: holm(frame[p].where(named)) for key, p in {"holm": "p", "equal": "p_equal"}.items()})
    return frame.assign(outcome=[outcome(row) for _, row in frame.iterrows()])


def power(frame: pd.DataFrame) -> str:
    """A sentence: what the named claims on rsum could show with these seeds and their median deviation."""
    rows = frame[frame["named"].astype(bool) & (frame["metric"] == "rsum") & (frame["seeds"] >= FEWEST_SEEDS)]
    if rows.empty:
        return ""
    seeds, deviation = int(rows["seeds"].median()), rows["deviation"].median()
    critical = stats.t.ppf(1 - LEVEL / 2 / frame["named"].sum(), seeds - 1)
    missed = lambda lead: stats.nct.cdf(critical, seeds - 1, lead * seeds**0.5 / deviation) - 0.2  # noqa: E731
    lead = optimize.brentq(missed, deviation, 20 * deviation)
    return (
        f"Power: with {seeds} seeds and the median deviation of {deviation:.1f}, a difference of {lead:.0f} rsum "
        "passes the first step of Holm's correction with a probability of 80 %. Equality can be shown only if the "
        f"deviation is below {MARGIN * seeds**0.5 / stats.t.ppf(1 - LEVEL, seeds - 1):.1f}."
    )


def outcome(row: pd.Series) -> str:
    """Result of the test over seeds for the claim that the difference is positive."""
    if row["seeds"] < FEWEST_SEEDS:
        return "not measured" if row["seeds"] == 0 else "too few seeds"
    if not row["named"]:
        return UNNAMED
    if not row["holm"] < LEVEL:
        return EQUAL if row["equal"] < LEVEL else OPEN
    return HOLDS if row["difference"] > 0 else AGAINST


def judged_table(frame: pd.DataFrame) -> ReportTable:
    """The judged claims: published values, the measured difference and p, also tuned where `tuned_` columns are."""
    rows, head = [], ["claim", "outcome", "published", "measured difference", "p"]
    sides = [""]
    if "tuned_p" in frame:
        sides, head = ["", "tuned_"], [*head[:3], "at the papers' settings", "p", "tuned on validation", "p"]
    for _, row in frame.iterrows():
        published = number(row["published_higher"]), number(row["published_lower"])
        rows.append([row["claim"], row["outcome"], "" if published == ("–", "–") else " / ".join(published)])
        for side in sides:
            text = spread(*row[[f"{side}{name}" for name in ("difference", "deviation", "low", "high")]])
            rows[-1] += [text, probability_text(row[f"{side}p"])]
    return ReportTable(head, rows, f"Claims: {RULE}. {power(frame)}", text_left=2)


def spread(difference: float, deviation: float, low: float = math.nan, high: float = math.nan) -> str:
    """ "+1.2 ± 0.4 [+0.2, +2.2]", without a deviation "+1.2", a dash for none."""
    text = number(difference, "+") + ("" if math.isnan(deviation) else f" ± {deviation:.1f}")
    return text if math.isnan(low) else f"{text} [{low:+.1f}, {high:+.1f}]"


def over_seeds(values: pd.Series, digits: int = 1) -> str:
    """ "326.4 ± 3.7", the mean and sample deviation; the mean alone of one value, a dash of none."""
    return spread_text(values.mean(), values.std(), digits)


def number(value: float, sign: str = "") -> str:
    """A value to one decimal, or a dash."""
    return "–" if pd.isna(value) else f"{value:{sign}.1f}"


def verdict(frame: pd.DataFrame, names: bool = True) -> str:
    """The number of claims of each outcome in one sentence. names: name those that hold or are contradicted."""
    frame, sentences = frame[frame["named"].astype(bool)], []
    for kind in OUTCOMES:
        claims = list(frame.loc[frame["outcome"] == kind, "claim"])
        named = f" ({'; '.join(claims)})" if names and kind in (HOLDS, AGAINST) else ""
        words = OUTCOMES[kind][len(claims) > 1]
        sentences += [f"{len(claims)} {words}{named}"] if claims else []
    ahead = int((frame["difference"] > 0).sum())
    known = int(frame["difference"].notna().sum())
    start = f"Of {len(frame)} judged claims, {', '.join(sentences)}."
    return f"{start} The mean difference has the claimed sign in {ahead} of {known}."


def tell(folder: Path, frame: pd.DataFrame, case: str, wording: Mapping[str, str] | None = None) -> None:
    """Write the README's parts "verdict", "claims" and "cases".

    frame: a row a run, in the order of the table: `case`, seed, images, best_epoch, val_rsum, rsum and hs_sum.
    wording: replacements in the text, where the values are not of seeds.
    """
    claims = judged(frame, read_expected(folder), case)
    for name, text in (
        ("claims", judged_table(claims).markdown()),
        ("verdict", verdict(claims)),
        ("cases", cases_table(frame, case).markdown()),
    ):
        for old, new in (wording or {}).items():
            text = text.replace(old, new)
        renew(folder / "README.md", text, name)


def cases_table(frame: pd.DataFrame, case: str) -> ReportTable:
    """Means over the seeds with their sample deviation, a row a case."""
    rows = [
        [
            str(name),
            str(len(of_case)),
            *(over_seeds(of_case[figure]) for figure in ("val_rsum", "rsum", "hs_sum")),
            f"{of_case['best_epoch'].mean():.1f}",
        ]
        for name, of_case in frame.groupby(case, sort=False)
    ]
    head = [case, "seeds", "val rsum", "test rsum", "hs_sum", "best epoch"]
    return ReportTable(
        head, rows, "Means over the seeds ± one sample standard deviation. Epochs are counted from 0.", text_left=1
    )
