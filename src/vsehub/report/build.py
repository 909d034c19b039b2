"""Building a report from run folders: tables, paired tests, plots and the page."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from vsehub.io.files import atomic, write_text
from vsehub.io.outputs import Output
from vsehub.report.pages.runs import origin, page_table, run_notes, setting_facts
from vsehub.report.pages.sections import Section, bullets, sections_markdown
from vsehub.report.pages.templates import render_page
from vsehub.report.plots import Picture
from vsehub.report.recipes import name_test_sets, recipe_differences, recipes_by_series, series_of
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
from vsehub.report.tables import ReportTable, count_text, frame_csv, markdown_text

SURE = ("results.csv", "table.csv", "table.md", "table.tex", "table.txt", "index.html")  # written for any runs
UNTESTED = "none (no values of single images, no common seed, or different data): nothing is claimed beyond mean ± std"


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
    means = aggregate(frame)
    tests = paired(shown, series, frame, recipes)
    pictures = draw(shown, series, means, intervals(shown, series, frame))
    title = title or f"vsehub report: {', '.join(sorted({str(run.record['dataset']) for run in runs}))}"
    settings = by_setting(means)
    measured = [_setting_section(setting, rows, frame, shown, tests, pictures) for setting, rows in settings.items()]
    tables = [results_table(rows, setting.title) for setting, rows in settings.items()]
    swept = sweep_sections(shown, frame)
    training = Section("Training", pictures=[picture for picture in pictures if picture.setting is None])
    notes, of_recipes = run_notes(runs, frame), recipe_differences(recipes)
    texts = {
        "results.csv": frame_csv(frame),
        "table.csv": frame_csv(means),
        "table.md": _table_page(title, tables, measured, swept, [*notes, *of_recipes]),
        "table.tex": "\n".join(table.latex() for table in tables),
        "table.txt": _terminal(title, means, len(notes) + len(of_recipes)),
    }
    if len(tests):
        texts["paired.csv"] = frame_csv(tests)
        sections = [Section(setting.title, tables=[paired_table(rows)]) for setting, rows in by_setting(tests).items()]
        texts["paired.md"] = f"# Paired tests\n\n{sections_markdown(sections)}"
    texts["index.html"] = render_page(
        "page.html.j2",
        title=title,
        summary=summary(runs),
        notes=notes,
        measured=measured,
        others=[
            *swept,
            *([training] if training.pictures else []),
            *origin(runs, series, recipes, of_recipes),
        ],
        commands=[(run.path, str(run.record["command"])) for run in runs if run.record.get("command")],
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
    records = [run.record for run in runs]
    counts = [
        count_text(len(runs), "run"),
        count_text(len({record["label"] for record in records}), "loss", "losses"),
        count_text(len({record["seed"] for record in records}), "seed"),
        count_text(sum(len(run.evaluations) for run in runs), "evaluation"),
    ]
    return ", ".join(counts)


def _setting_section(
    setting: Setting,
    rows: pd.DataFrame,
    frame: pd.DataFrame,
    runs: Sequence[Run],
    tests: pd.DataFrame,
    pictures: Sequence[Picture],
) -> Section:
    """The results of one setting, with its paired tests, facts and plots."""
    own = tests[(tests[list(Setting._fields)] == list(setting)).all(axis=1)]
    tables = [page_table(results_table(rows))]
    folded = [(count_text(len(own), "paired test"), paired_table(own))] if len(own) else []
    facts = setting_facts(setting, frame, runs)
    facts += [("paired tests", UNTESTED)] if len(rows) > 1 and own.empty else []
    drawn = [picture for picture in pictures if picture.setting == setting]
    lead = [picture for picture in drawn if picture.name.startswith(OVERVIEW)]
    notes = [conclusion(own)] if len(rows) > 1 else []
    rest = [picture for picture in drawn if picture not in lead]
    return Section(setting.title, notes, tables, facts, rest, lead, folded)


def _table_page(
    title: str,
    tables: Sequence[ReportTable],
    measured: Sequence[Section],
    swept: Sequence[Section],
    notes: Sequence[str],
) -> str:
    """The text of table.md: the table, the paired tests and facts of each setting, then the sweeps and the notes."""
    parts = [f"# {markdown_text(title)}", *([] if tables else ["No run was evaluated."])]
    for section, table in zip(measured, tables, strict=True):
        parts.append(section._replace(tables=[table._replace(caption="")]).markdown())
    parts += [sections_markdown(swept).strip()] if swept else []
    parts += ["## Notes", bullets(notes)] if notes else []
    return "\n\n".join(parts) + "\n"


def _terminal(title: str, means: pd.DataFrame, notes: int) -> str:
    """The text of table.txt, which the command prints: a short table per setting."""
    parts = [title, *(short_table(rows, setting.title).terminal() for setting, rows in by_setting(means).items())]
    parts += [] if len(means) else ["No run was evaluated."]
    parts += [f"all columns, paired tests and {count_text(notes, 'note')}: table.md, and the page"]
    return "\n\n".join(parts) + "\n"
