"""The page: one HTML file that carries its figures and needs no network."""

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from vsehub.report.comparison import Comparison, comparison_values
from vsehub.report.drawing import Picture
from vsehub.report.notes import code_version, hardware, versions_text
from vsehub.report.recipes import Series, differing
from vsehub.report.runs import Run
from vsehub.report.study import Part
from vsehub.report.tables import DIRECTIONS, HEADINGS, RANKS, Setting, duration
from vsehub.report.templates import render_page


class Section(NamedTuple):
    """One setting of the page: its rows as text, the sentences below them, the verdicts and the figures."""

    setting: Setting
    table: pd.DataFrame
    sentences: list[str]
    verdicts: list[str]
    pictures: list[Picture]


class Published(NamedTuple):
    """The table beside the published figures: its heading, its rows as text, its sentences."""

    heading: str
    table: pd.DataFrame
    sentences: list[str]


def page(
    title: str,
    summary: str,
    warnings: Sequence[str],
    sections: Sequence[Section],
    recipe_notes: Sequence[str],
    training: Sequence[Picture],
    published: Published | None,
    provenance: dict,
    comparison: Comparison | None = None,
    swept: Sequence[Part] = (),
) -> str:
    """The whole page. `provenance` is that of `provenance`; every text is escaped."""
    return render_page(
        "page.html.j2",
        {"grid": grid},
        title=title,
        summary=summary,
        warnings=warnings,
        sections=sections,
        recipe_notes=recipe_notes,
        training=training,
        published=published,
        provenance=provenance,
        compared=None if comparison is None else comparison_values(comparison),
        swept=swept,
    )


def grid(table: pd.DataFrame) -> dict:
    """A frame of text for the template: two heading rows, and cells parted into mean and deviation.

    The ten columns of ranks are gathered under their directions; columns that the section's heading or its sentences
    already say are left out, and the loss comes first. On a phone the first columns alone are seen at once.
    """
    told = Setting._fields if "line" in table else (*Setting._fields, "criterion", "reference")
    said = [name for name in told if name in table and table[name].nunique() == 1]
    last = () if "line" in table else ("seeds", HEADINGS["wall_seconds"])
    names = [HEADINGS["label"], *(name for name in table.columns if name not in (*said, HEADINGS["label"], *last))]
    names += [name for name in last if name in table]
    ranked = {f"{side} {heading}": (side, heading) for side in DIRECTIONS for _, heading in RANKS}
    groups: list[list] = []
    for name in names:
        over = DIRECTIONS[ranked[name][0]] if name in ranked else ""
        if groups and over and groups[-1][0] == over:
            groups[-1][1] += 1
        else:
            groups.append([over, 1])
    numeric = {*ranked, "rsum", "hs_sum", HEADINGS["wall_seconds"]}
    return {
        "groups": groups,
        "names": [ranked[name][1] if name in ranked else name for name in names],
        "numeric": [name in numeric for name in names],
        "rows": [[_parted(cell) for cell in row] for row in table[names].itertuples(index=False, name=None)],
        "starts": _starts(table),
    }


def _parted(cell: str) -> tuple[str, str]:
    """A mean, and its deviation as it stands beside it in small type."""
    mean, sign, deviation = cell.partition(" ± ")
    return mean, f"± {deviation}" if sign else ""


def _starts(table: pd.DataFrame) -> list[bool]:
    """Which rows begin a group of rows that belong together: a published line, or a criterion and its reference."""
    keys = [name for name in (["line"] if "line" in table else ["criterion", "reference"]) if name in table]
    return (table[keys] != table[keys].shift()).any(axis=1).tolist()


def provenance(runs: Sequence[Run], series: dict[str, Series], recipes: dict[Series, dict[str, str]]) -> dict:
    """What the page says about where the figures come from: the runs, their commands, what differs between recipes."""
    keys = differing(recipes.values())
    one_place = len({one[:2] for one in recipes}) == 1
    return {
        "runs": [_run_line(run, series) for run in runs],
        "versions": _distinct(versions_text(run.record.get("versions")) for run in runs),
        "hardware": _distinct(hardware(run) for run in runs),
        "commands": [(run.path, str(run.record["command"])) for run in runs if run.record.get("command")],
        "series": [one.title if one_place else f"{one.dataset} · {one.architecture} · {one.title}" for one in recipes],
        "differences": [(key, [settings.get(key, "–") for settings in recipes.values()]) for key in keys],
    }


def _run_line(run: Run, series: dict[str, Series]) -> dict[str, str]:
    record = run.record
    best = record.get("best") or {}
    return {
        "run": run.path,
        "name": record["name"],
        "loss": series[run.path].title if run.path in series else record["label"],
        "seed": record["seed"],
        "status": record["status"],
        "best epoch": best.get("epoch", "–"),
        "wall time": duration(record.get("wall_seconds")),
        "started": record.get("started", "–"),
        "code": code_version(run),
    }


def _distinct(texts: Sequence[str]) -> list[str]:
    return [text for text in dict.fromkeys(texts) if text]
