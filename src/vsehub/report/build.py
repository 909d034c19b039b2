"""Building a report from run folders: tables, paired tests, plots and the page."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pandas as pd

from vsehub.checks import one_line, require, suggest
from vsehub.io.files import Output, atomic
from vsehub.report.pages.runs import origin_sections, run_notes, setting_facts
from vsehub.report.pages.templates import render_page
from vsehub.report.recipes import Series, differing, name_test_sets, recipe, recipes_by_series, series_of
from vsehub.report.results import (
    MARKS,
    UNWRITTEN,
    Setting,
    aggregate,
    by_setting,
    conclusion,
    intervals,
    paired_table,
    paired_tests,
    results,
    results_table,
)
from vsehub.report.run_plots import curves, occurrences, overview, styles
from vsehub.report.runs import Run, read_runs
from vsehub.report.sweeps import sweep_sections
from vsehub.report.tables import Section, count_text, frame_csv, markdown_text

MEANS = "Mean over the seeds, ± one standard deviation. hs_sum: sum of the skewness of N_1, N_5, N_10, both directions."
ALWAYS_WRITTEN = ("results.csv", "table.csv", "table.md", "table.tex", "table.txt", "index.html")


def build_report(
    folders: Sequence[str | Path],
    out: str | Path,
    title: str | None = None,
    overwrite: bool = False,
    columns: Sequence[str] = (),
) -> dict[str, Path]:
    """Read every run in or below `folders` and write the report into the folder `out`.

    results.csv has a line per evaluation, and after its metrics a column for each setting in which runs differ.

    Args:
        overwrite: whether to replace an earlier report.
        columns: metrics of the evaluations, the columns of the tables; without any, recalls, ranks, rsum and hs_sum.

    Returns:
        The written files by their path within `out`.

    Raises:
        InputError: runs cannot be read, none has a metric of `columns`, or `out` holds files that must not be replaced.
    """
    output = Output(out, "a report", ALWAYS_WRITTEN, overwrite)
    files = report_files(name_test_sets(read_runs(folders)), title, columns)
    with output.transaction():
        for name, content in files.items():
            with atomic(output / name) as handle:
                handle.write(content)
    return {name: output.folder / name for name in files}


def report_files(runs: Sequence[Run], title: str | None, columns: Sequence[str]) -> dict[str, bytes]:
    """The files of the report by their path within its folder; arguments as in `build_report`."""
    # A run without any value or epoch belongs to no recipe; the notes name it.
    shown = [run for run in runs if run.evaluations or len(run.history)]
    series_by_run = series_of(shown)
    recipes = recipes_by_series(shown, series_by_run)
    title_styles = styles(series_by_run.values())
    known = {key for run in shown for evaluation in run.evaluations.values() for key in evaluation["metrics"]}
    for key in columns:
        require(key in known, f"columns: no evaluation has the metric {key}{suggest(key, known)}")
    frame = results(shown, series_by_run)
    means = aggregate(frame, columns)
    means_by_setting = by_setting(means)
    tests = paired_tests(frame, recipes)
    notes = run_notes(runs, frame, series_by_run, recipes)
    results_sections = setting_sections(frame, means_by_setting, tests, columns, title_styles)
    sections = [*sweep_sections(shown), *results_sections]
    in_markdown = [*sections, Section("Notes", notes)] if notes else sections
    title = title or f"vsehub report: {'; '.join(sorted({run.record['dataset'] for run in shown or runs}))}"
    settings = {run.path: recipe(run) for run in shown}
    varied = {key: [settings[run].get(key) for run in frame["run"]] for key in differing(settings.values())}
    counts = [count_text(len(runs), "run"), count_text(len(frame), "evaluation"), count_text(len(notes), "note")]
    tables = [results_table(table, columns, setting.title).terminal() for setting, table in means_by_setting.items()]
    texts = {
        "results.csv": frame_csv(pd.DataFrame({**frame.drop(columns=UNWRITTEN), **varied})),
        "table.csv": frame_csv(means),
        "table.md": "\n\n".join([f"# {markdown_text(title)}", *(part.markdown() for part in in_markdown)]),
        "table.tex": "\n".join(
            section.tables[0]._replace(caption=f"{section.heading}. {section.tables[0].caption}").latex()
            for section in results_sections
        ),
        "table.txt": "\n\n".join([one_line(title), *tables, f"{', '.join(counts)}: table.md, and the page"]) + "\n",
    }
    if len(tests):
        texts["paired.csv"] = frame_csv(tests)
    on_page = [*sections, *training_sections(shown, series_by_run, title_styles)]
    texts["index.html"] = render_page(
        "page.html.j2",
        title=title,
        summary=", ".join(counts[:2]),
        notes=notes,
        sections=[*on_page, *origin_sections(runs, series_by_run, recipes)],
    )
    files = {name: text.encode(errors="backslashreplace") for name, text in texts.items()}
    for section in on_page:
        for picture in (*section.lead, *section.pictures):
            files |= {f"figures/{picture.name}.png": picture.png, f"figures/{picture.name}.svg": picture.svg}
    return files


def setting_sections(
    frame: pd.DataFrame,
    means_by_setting: Mapping[Setting, pd.DataFrame],
    tests: pd.DataFrame,
    columns: Sequence[str],
    title_styles: dict[str, dict],
) -> list[Section]:
    """The section of each setting. frame: `results` of all runs. tests: `paired_tests` of all runs."""
    lines_by_setting, tests_by_setting, sections = by_setting(frame), by_setting(tests), list[Section]()
    for number, (setting, means) in enumerate(means_by_setting.items(), 1):
        suffix = f"-{number}" if len(means_by_setting) > 1 else ""
        lines, pairs = lines_by_setting[setting], tests_by_setting.get(setting, tests[:0])
        table = results_table(means, columns, f"{MEANS} {MARKS}" if len(means) > 1 else MEANS, lines)
        histogram = occurrences(lines, title_styles, f"occurrences{suffix}")
        sections.append(
            Section(
                setting.title,
                notes=[conclusion(pairs)] if len(means) > 1 else [],
                tables=[table, paired_table(pairs)] if len(pairs) else [table],
                facts=setting_facts(lines),
                pictures=[histogram] if histogram else [],
                lead=[overview(intervals(lines), title_styles, f"overview{suffix}")],
            )
        )
    return sections


def training_sections(
    runs: Sequence[Run], series_by_run: dict[str, Series], title_styles: dict[str, dict]
) -> list[Section]:
    """The training curves of each data set and architecture, if its runs have epochs."""
    sections = []
    groups = sorted({(series.dataset, series.architecture) for series in series_by_run.values()})
    for number, group in enumerate(groups, 1):
        members = [
            run for run in runs if (series_by_run[run.path].dataset, series_by_run[run.path].architecture) == group
        ]
        if curve := curves(members, series_by_run, title_styles, f"rsum-over-epochs-{number}"):
            sections.append(Section(f"Training: {' · '.join(group)}", pictures=[curve]))
    return sections
