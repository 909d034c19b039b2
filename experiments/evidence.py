"""What the studies' render.py share: claims held against results, and the parts of pages that commands write.

A study is a folder: README.md, expected.csv (the claims), results.csv (a row a run and evaluation), table.md, figures/
and render.py, which makes the last two and the README's generated parts from the two tables alone.
"""

import argparse
from pathlib import Path

import pandas as pd

from vsehub.checks import require
from vsehub.io.files import write_text

START, END = "<!-- generated{} -->", "<!-- end of the generated part -->"
EXPECTED = ["claim", "source", "metric", "higher", "lower", "published_higher", "published_lower"]
OUTCOMES = ("holds", "within the spread", "contradicted", "not measured", "too few seeds")


def renew(page: Path, text: str, name: str = "") -> None:
    """Put `text` between the marks of a page: `<!-- generated: NAME -->`, or `<!-- generated -->` without a name.

    Raises InputError where the page lacks the marks.
    """
    mark = START.format(f": {name}" if name else "")
    before, found, rest = page.read_text().partition(mark)
    require(bool(found) and END in rest, f"{page} has no part between {mark} and {END}; put these two lines in")
    write_text(page, f"{before}{mark}\n\n{text.strip()}\n\n{END}{rest.partition(END)[2]}")


def study_folder(document: str, default: Path) -> Path:
    """The folder that a render.py works on: its own, or the one on the command line."""
    parser = argparse.ArgumentParser(description=document, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path, default=default, help="default: the study's own")
    return parser.parse_args().folder


def read_expected(folder: Path) -> pd.DataFrame:
    """A study's claims, a row each; InputError where columns are missing."""
    frame = pd.read_csv(folder / "expected.csv", dtype={"higher": str, "lower": str})
    lacking = [name for name in EXPECTED if name not in frame]
    require(not lacking, f"{folder / 'expected.csv'} lacks the columns {', '.join(lacking)}")
    return frame


def judged(results: pd.DataFrame, expected: pd.DataFrame, case: str = "loss", paired: bool = False) -> pd.DataFrame:
    """The claims with what was measured: means, difference, spread, seeds, outcome (one of OUTCOMES).

    results: one row a run, `case` naming what is compared, `seed` and the metrics in columns. A claim holds when the
    difference exceeds the spread: the sum of the two sample standard deviations over seeds or, `paired` (both figures
    come from the same run), twice the standard deviation of the differences run by run. One seed decides nothing.
    """
    lines = []
    for _, row in expected.iterrows():
        values = results.set_index("seed")
        one, other = (values.loc[values[case] == row[side], row["metric"]].dropna() for side in ("higher", "lower"))
        repeated = one.index.has_duplicates or other.index.has_duplicates
        require(not repeated, f"{row['higher']} or {row['lower']} has a seed twice; choose one evaluation of each run")
        if paired:
            common = one.index.intersection(other.index)
            one, other = one[common], other[common]
        lead = one.mean() - other.mean()
        spread = 2 * (one - other).std() if paired else one.std() + other.std()
        seeds = min(len(one), len(other))
        lines.append(
            {
                "measured_higher": one.mean(),
                "measured_lower": other.mean(),
                "difference": lead,
                "spread": spread,
                "seeds": seeds,
                "outcome": outcome(lead, spread, seeds),
            }
        )
    return pd.concat([expected.reset_index(drop=True), pd.DataFrame(lines)], axis=1)


def outcome(lead: float, spread: float, seeds: int) -> str:
    """What a difference allows to say of the claim that it is positive."""
    if seeds < 2:
        return "not measured" if seeds == 0 else "too few seeds"
    if abs(lead) <= spread:
        return "within the spread"
    return "holds" if lead > 0 else "contradicted"


def judged_table(frame: pd.DataFrame) -> str:
    """The judged claims as markdown, published figures beside the measured ones."""
    head = ["claim", "source", "metric", "published", "measured", "difference", "spread", "seeds", "outcome"]
    lines = [f"| {' | '.join(head)} |", "|" + " --- |" * 3 + " ---: |" * 5 + " --- |"]
    for _, row in frame.iterrows():
        cells = [row["claim"], row["source"], row["metric"]]
        cells += [pair(row["published_higher"], row["published_lower"])]
        cells += [pair(row["measured_higher"], row["measured_lower"])]
        cells += [figure(row["difference"], "+"), figure(row["spread"]), str(row["seeds"]), row["outcome"]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def pair(higher: float, lower: float) -> str:
    """ "327.6 / 302.4", a dash for what is not there."""
    return f"{figure(higher)} / {figure(lower)}"


def figure(value: float, sign: str = "") -> str:
    """A figure to one decimal, or a dash."""
    return "–" if pd.isna(value) else f"{value:{sign}.1f}"


def verdict(frame: pd.DataFrame) -> str:
    """Two sentences: what holds, then what does not; what contradicts is always named, long lists are counted."""
    first = (
        f"Beyond the spread of the seeds {(frame['outcome'] == 'holds').sum()} of {len(frame)} published claims hold"
    )
    held = list(frame.loc[frame["outcome"] == "holds", "claim"])
    told = [
        f"{kind}: {named(claims, 4 if kind != 'contradicted' else len(claims))}"
        for kind in ("contradicted", *OUTCOMES[1:2], *OUTCOMES[3:])
        if (claims := list(frame.loc[frame["outcome"] == kind, "claim"]))
    ]
    rest = f"Of the others, {'; '.join(told)}." if told else "None is contradicted."
    return f"{first}{': ' + named(held, 8) if held else ''}. {rest}"


def named(claims: list[str], most: int) -> str:
    """The claims, or their number where they are more than `most`."""
    return ", ".join(claims) if len(claims) <= most else f"{len(claims)} (in the table)"
