"""Building a report from run folders: tables, paired tests, plots and the page."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from vsehub.io.files import Output, atomic, write_text
from vsehub.report.pages.runs import origin, page_table, run_notes, setting_facts
from vsehub.report.pages.sections import Section, bullets
from vsehub.report.pages.templates import render_page
from vsehub.report.plots import Picture
from vsehub.report.recipes import name_test_sets, recipes_by_series, series_of
from vsehub.report.results import (
    Setting,
    aggregate,
    by_setting,
    conclusion,
    intervals,
    paired,
    paired_table,
    results,
    results_table,
    short_table,
)
from vsehub.report.run_plots import OVERVIEW, draw
from vsehub.report.runs import Run, read_runs
from vsehub.report.sweeps import sweep_sections
from vsehub.report.tables import count_text, frame_csv, markdown_text

SURE = ("results.csv", "table.csv", "table.md", "table.tex", "table.txt", "index.html")  # written for any runs
UNTESTED = "none (no values of single images, no common seed, or different data): nothing is claimed beyond mean ± std"
NOTHING = "No run was evaluated."


def build_report(
    folders: Sequence[str | Path],
    out: str | Path,
    title: str | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Read every run in or below `folders` and write the report into the folder `out`.

    Args:
        overwrite: whether to replace an earlier report.

    Returns:
        The written files by their path within `out`.

    Raises:
        InputError: runs cannot be read, or `out` holds files that must not be replaced.
    """
    output = Output(out, "a report", SURE, overwrite)
    runs = name_test_sets(read_runs(folders))
    # a run without any value or epoch belongs to no recipe; the notes name it
    shown = [run for run in runs if run.evaluations or len(run.history)]
    series = series_of(shown)
    recipes = recipes_by_series(shown, series)
    frame = results(shown, series)
    means, tests = aggregate(frame), paired(shown, frame, recipes)
    pictures = draw(shown, series, means, intervals(shown, frame))
    title = title or f"vsehub report: {', '.join(sorted({str(run.record['dataset']) for run in runs}))}"
    notes, swept = run_notes(runs, frame, recipes), sweep_sections(shown)
    settings = by_setting(means)
    measured = [_section(setting, rows, frame, shown, tests, pictures) for setting, rows in settings.items()]
    training = [picture for picture in pictures if picture.setting is None]
    texts = {
        "results.csv": frame_csv(frame),
        "table.csv": frame_csv(means),
        "table.md": _markdown(title, settings, measured, tests, swept, notes),
        "table.tex": "\n".join(results_table(rows, setting.title).latex() for setting, rows in settings.items()),
        "table.txt": _terminal(title, settings, len(notes)),
    }
    if len(tests):
        texts["paired.csv"] = frame_csv(tests)
    texts["index.html"] = render_page(
        "page.html.j2",
        title=title,
        summary=summary(runs),
        notes=notes,
        measured=measured,
        others=[
            *swept,
            *([Section("Training", pictures=training)] if training else []),
            *origin(runs, series, recipes),
        ],
    )
    return write_all(output, texts, [*pictures, *(picture for part in swept for picture in part.pictures)])


def write_all(out: Output, texts: dict[str, str], pictures: Sequence[Picture]) -> dict[str, Path]:
    """Write texts and plots below `out`, each atomically; the written files by their path within `out`."""
    drawn = {
        f"figures/{p.name}.{kind}": content for p in pictures for kind, content in (("png", p.png), ("svg", p.svg))
    }
    out.begin([*texts, *drawn])
    for name, content in drawn.items():
        with atomic(out / name) as handle:
            handle.write(content)
    for name, text in texts.items():
        write_text(out / name, text)
    out.finish()
    return {name: out / name for name in (*texts, *drawn)}


def summary(runs: Sequence[Run]) -> str:
    """The numbers of runs: "6 runs, 3 losses, 2 seeds, 12 evaluations"."""
    losses, seeds = ({run.record[key] for run in runs} for key in ("label", "seed"))
    counts = [count_text(len(runs), "run"), count_text(len(losses), "loss", "losses"), count_text(len(seeds), "seed")]
    return ", ".join([*counts, count_text(sum(len(run.evaluations) for run in runs), "evaluation")])


def _of(setting: Setting, frame: pd.DataFrame) -> pd.DataFrame:
    return frame[(frame[list(Setting._fields)] == list(setting)).all(axis=1)]


def _section(
    setting: Setting,
    rows: pd.DataFrame,
    frame: pd.DataFrame,
    runs: Sequence[Run],
    tests: pd.DataFrame,
    pictures: Sequence[Picture],
) -> Section:
    """The results of one setting, with the outcome of its paired tests, metadata and plots."""
    own = _of(setting, tests)
    facts = setting_facts(_of(setting, frame), runs)
    notes = []
    if len(rows) > 1:
        notes = [conclusion(own)]
        facts += [("paired tests", UNTESTED if own.empty else f"{len(own)}, in paired.csv and table.md")]
    drawn = [picture for picture in pictures if picture.setting == setting]
    lead = [picture for picture in drawn if picture.name.startswith(OVERVIEW)]
    rest = [picture for picture in drawn if picture not in lead]
    return Section(setting.title, notes, [page_table(rows)], facts, rest, lead)


def _markdown(
    title: str,
    settings: dict[Setting, pd.DataFrame],
    measured: Sequence[Section],
    tests: pd.DataFrame,
    swept: Sequence[Section],
    notes: Sequence[str],
) -> str:
    """The text of table.md: the table, the paired tests and metadata of each setting, then the sweeps and the notes."""
    sections = []
    for section, (setting, rows) in zip(measured, settings.items(), strict=True):
        own = _of(setting, tests)
        tables = [results_table(rows), *([paired_table(own)] if len(own) else [])]
        sections.append(section._replace(tables=tables))
    parts = [f"# {markdown_text(title)}", "\n\n".join(section.markdown() for section in [*sections, *swept]) or NOTHING]
    parts += ["## Notes", bullets(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _terminal(title: str, settings: dict[Setting, pd.DataFrame], notes: int) -> str:
    """The text of table.txt, which the command prints: a short table per setting."""
    tables = [short_table(rows, setting.title).terminal() for setting, rows in settings.items()]
    rest = f"all columns, paired tests and {count_text(notes, 'note')}: table.md, and the page"
    return "\n\n".join([title, *(tables or [NOTHING]), rest]) + "\n"
