"""The figures, the HTML page and the README's generated parts from the grid's tables."""

from pathlib import Path

import pandas as pd

from experiments.evidence import judged, judged_table, read_expected, renew
from experiments.grid import figures, tables, words
from experiments.plots import save
from vsehub.io.files import write_text
from vsehub.report.pages.templates import render_page
from vsehub.report.tables import Section


def render(folder: Path, page: Path | None = None) -> None:
    """Write all that is generated in a study's folder; its README's parts where it has one."""
    frame, tests = pd.read_csv(folder / "results.csv"), pd.read_csv(folder / "comparisons.csv")
    claims = judge(frame, read_expected(folder))
    drawn = {
        "losses": figures.forest(tests),
        "criteria": figures.gains(frame, tests),
        "hubness": figures.hubness(frame),
    }
    parts = sections(frame, tests, claims, drawn)
    first = words.summary(tests, claims)
    save(folder, *drawn.values())
    if page is not None:
        write_text(page, render_page("page.html.j2", title=title(frame), summary=first, notes=[], sections=parts))
    if (folder / "README.md").exists():
        short = [
            tables.ranking(frame, tests),
            *(
                tables.gains(frame, tests, reference, "tuned")
                for reference in ("transductive", "inductive")
                if (frame["reference"] == reference).any()
            ),
        ]
        lines = [f"- {sentence}" for sentence in parts[1].notes]
        renew(folder / "README.md", first, "verdict")
        renew(
            folder / "README.md",
            "\n\n".join(["\n".join(lines), *(table.markdown() for table in [*short, judged_table(claims)])]),
            "figures",
        )


def title(frame: pd.DataFrame) -> str:
    """Losses, criteria, seeds and data of the grid."""
    losses, names = frame["loss"].nunique(), frame["criterion"].nunique()
    return f"{losses} losses x {names} criteria on {', '.join(sorted(set(frame['dataset'])))}"


def judge(frame: pd.DataFrame, expected: pd.DataFrame) -> pd.DataFrame:
    """The papers' claims, transductive: at the papers' settings (λ of `rgm` on val), and tuned, under `tuned_`."""
    frame = frame.assign(case=frame["loss"] + " " + frame["criterion"])
    tuned = tables.view(frame, "transductive", "tuned")
    papers = pd.concat(
        [tables.view(frame[frame["criterion"] != "rgm"], "transductive", "default"), tuned[tuned["criterion"] == "rgm"]]
    )
    beside = judged(tuned, expected, "case")[["difference", "deviation", "low", "high", "p"]]
    return judged(papers, expected, "case").join(beside.add_prefix("tuned_"))


def sections(frame: pd.DataFrame, tests: pd.DataFrame, claims: pd.DataFrame, drawn: dict) -> list[Section]:
    """The page's parts, in order."""
    heats = [tables.heat(frame, *kind) for kind in tables.VIEWS]
    gains = [tables.gains(frame, tests, *kind) for kind in tables.VIEWS]
    hubs = [tables.heat(frame, reference, "tuned", "hs_sum", 2) for reference in ("transductive", "inductive")]
    return [
        Section(
            "Losses",
            [],
            [tables.ranking(frame, tests), tables.pairs(tests, tables.LOSSES)],
            pictures=[drawn["losses"]],
        ),
        Section("Criteria", words.on_criteria(tests), gains, pictures=[drawn["criteria"]]),
        Section("Losses x criteria", [], heats),
        Section("Hubness", [], hubs, pictures=[drawn["hubness"]]),
        Section("What the papers claim", [words.RULE], [judged_table(claims)]),
        Section("How it was trained", words.protocol(frame)),
    ]
