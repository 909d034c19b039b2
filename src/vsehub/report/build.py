"""From run folders to a report: tables, figures and the page, in one call."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from vsehub.checks import require
from vsehub.io.files import atomic, write_text
from vsehub.io.outputs import Output
from vsehub.report import published as papers
from vsehub.report.pages.comparison import Comparison
from vsehub.report.pages.runs import Published, Section, page, provenance, setting_sentences, warnings
from vsehub.report.pages.study import study_markdown
from vsehub.report.plots import Picture, draw
from vsehub.report.recipes import recipes_by_series, series_of
from vsehub.report.runs import Run, read_runs
from vsehub.report.sweep_plots import sweep_parts
from vsehub.report.tables import COLUMNS, aggregate, by_setting, display, latex, markdown, markdown_text, results
from vsehub.report.verdicts import recipe_differences, verdicts

SURE = ("results.csv", "table.csv", "table.md", "table.tex", "index.html")  # written for any runs


def build_report(
    folders: Sequence[str | Path],
    out: str | Path,
    title: str | None = None,
    paper: str | None = None,
    table: str | None = None,
    comparison: Comparison | None = None,
    overwrite: bool = False,
) -> dict[str, Path]:
    """Read every run in or below `folders` and write the report into the folder `out`.

    `paper` and `table` (e.g. "aaai2020", "2") add a table beside that published one. `comparison`: two rankings whose
    hubs and examples the page shows. overwrite: an earlier report is replaced. Returns the written files by their path
    within `out`. Raises InputError on runs that cannot be read, on an unknown paper or table, and where `out` holds
    something that is not to be replaced.
    """
    require((paper is None) == (table is None), f"paper is {paper!r} and table is {table!r}; give both or neither")
    output = report_output(out, overwrite)
    runs = read_runs(folders)
    # a run that left neither a figure nor an epoch belongs to no recipe; the warnings name it
    shown = [run for run in runs if run.evaluations or len(run.history)]
    series = series_of(shown)
    recipes = recipes_by_series(shown, series)
    frame = results(shown, series)
    means = aggregate(frame)
    told = verdicts(means, recipes)
    pictures = draw(shown, series, means)
    sections = [
        Section(
            setting,
            display(rows),
            setting_sentences(setting, frame, shown),
            told.get(setting, []),
            [picture for picture in pictures if picture.setting == setting],
        )
        for setting, rows in by_setting(means).items()
    ]
    warned = warnings(runs, frame)
    recipe_notes = recipe_differences(recipes)
    title = title or f"vsehub report: {', '.join(sorted({str(run.record['dataset']) for run in runs}))}"

    texts = {
        "results.csv": frame.to_csv(index=False),
        "table.csv": means.to_csv(index=False),
        "table.md": table_page(title, display(means), sections, [*warned, *recipe_notes]),
        "table.tex": latex(display(means), title, [column.heading for column in COLUMNS]),
    }
    beside = None
    if paper is not None and table is not None:
        lines, sentences = papers.beside_published(means, paper, str(table))
        beside = Published(f"Measured beside published: {paper}, table {table}", papers.display(lines), sentences)
        texts["published.csv"] = lines.to_csv(index=False)
        texts["published.md"] = published_page(beside)
        texts["published.tex"] = latex(beside.table, beside.heading, [column.heading for column in COLUMNS])
    training = [picture for picture in pictures if picture.setting is None]
    swept = sweep_parts(shown, frame)
    if swept:
        texts["table.md"] += f"\n{study_markdown(swept)}"
    origin = provenance(runs, series, recipes)
    texts["index.html"] = page(
        title, summary(runs, told), warned, sections, recipe_notes, training, beside, origin, comparison, swept
    )
    return write_all(output, texts, [*pictures, *(picture for part in swept for picture in part.pictures)])


def report_output(out: str | Path, overwrite: bool) -> Output:
    """The folder of a report; InputError where it holds something that is not to be replaced."""
    return Output(out, "a report", SURE, overwrite)


def write_all(out: Output, texts: dict[str, str], pictures: Sequence[Picture]) -> dict[str, Path]:
    """Write texts and figures below `out`, each atomically; the written files by their path within `out`."""
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


def summary(runs: Sequence[Run], told: dict) -> str:
    """The page's first sentence: how much was run, and the verdict where there is a single one."""
    records = [run.record for run in runs]
    counts = [
        _count(len(runs), "run"),
        _count(len({record["label"] for record in records}), "loss", "losses"),
        _count(len({record["seed"] for record in records}), "seed"),
        _count(sum(len(run.evaluations) for run in runs), "evaluation"),
    ]
    first = [sentence for sentences in told.values() for sentence in sentences][:1]
    return " ".join([f"{', '.join(counts[:-1])} and {counts[-1]}.", *(f"Criterion {sentence}" for sentence in first)])


def _count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def table_page(title: str, shown: pd.DataFrame, sections: Sequence[Section], notes: Sequence[str]) -> str:
    """table.md: the whole table, then for each setting its sentences and verdicts, then the warnings."""
    parts = [f"# {markdown_text(title)}", markdown(shown) if len(shown) else "No run was evaluated."]
    for section in sections:
        parts.append(f"## {markdown_text(section.setting.title)}")
        parts.append(markdown_text(" ".join(section.sentences)))
        parts.append("\n".join(f"- {markdown_text(text)}" for text in section.verdicts))
    if notes:
        parts += ["## Notes", "\n".join(f"- {markdown_text(text)}" for text in notes)]
    return "\n\n".join(part.strip() for part in parts if part) + "\n"


def published_page(beside: Published) -> str:
    """published.md: heading, sentences, table."""
    sentences = "\n".join(f"- {markdown_text(text)}" for text in beside.sentences)
    return f"# {markdown_text(beside.heading)}\n\n{sentences}\n\n{markdown(beside.table).strip()}\n"
