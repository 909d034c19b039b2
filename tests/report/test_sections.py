"""A page of sections and its Markdown: the same cells in both, text that stays text, shades that follow the values."""

import html
import math
import re

import pytest

from vsehub.report.pages.sections import Section
from vsehub.report.pages.templates import render_page
from vsehub.report.tables import ReportTable, shades

HOSTILE = 'a<b> | "c" & \n d'


def test_page_and_markdown_have_the_same_cells():
    values = [[None, 1.0, 3.0], [None, None, 2.0]]
    rows = [["hal", ("1.0", "k 3"), "3.0"], [HOSTILE, "∅", "2.0 ± 0.1"]]
    table = ReportTable(["loss", "is", HOSTILE], rows, HOSTILE, over=["", "x", "x"], shades=shades(values))
    section = Section(HOSTILE, [HOSTILE], [table], [(HOSTILE, HOSTILE)])
    page = render_page("page.html.j2", title=HOSTILE, summary=HOSTILE, measured=[section], notes=[], others=[])
    cells = [html.unescape(re.sub("<[^>]+>", "", cell)) for cell in re.findall(r"<t[dh]\b.*?</t[dh]>", page, re.S)]
    assert cells == ["", "x", "loss", "is", HOSTILE, "hal", "1.0 k 3", "3.0", HOSTILE, "∅", "2.0 ± 0.1"]
    assert re.findall(r"--heat: ([\d.]+)", page) == ["0.000", "1.000", "0.500"]
    assert "<b>" not in page
    lines = [re.sub(" +", " ", line) for line in section.markdown().splitlines() if line.startswith("|")]
    assert [lines[0], *lines[2:]] == [
        '| loss | is | a&lt;b&gt; \\| "c" &amp; d |',
        "| hal | 1.0 k 3 | 3.0 |",
        '| a&lt;b&gt; \\| "c" &amp; d | ∅ | 2.0 ± 0.1 |',
    ]
    assert re.fullmatch(r"\|:-+\|-+:\|-+:\|", lines[1])


def test_a_table_for_the_terminal():
    table = ReportTable(["loss", "rsum"], [["hal", ("1.5", "± 0.2")], ["a,b", "22.0"]], "Losses.")
    assert table.terminal().splitlines() == [
        "Losses.", "loss         rsum", "------  ---------", "hal     1.5 ± 0.2", "a,b          22.0",
    ]  # fmt: skip
    empty = ReportTable(["loss", "rsum"], [])
    assert empty.terminal().split() == ["loss", "rsum", "------", "------"]
    assert len(empty.markdown().splitlines()) == 2
    assert r"loss & rsum \\" in empty.latex()


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([[2.0, 4.0], [3.0, None]], [[0.0, 1.0], [0.5, None]]),
        ([[math.nan, 5.0]], [[None, 0.0]]),  # one figure alone: nothing to tell apart
        ([[None]], [[None]]),
    ],
)
def test_shades(values, expected):
    assert shades(values) == expected
