"""A study's page and its markdown: one table in both, text that stays text, shades that follow the figures."""

import math
from html.parser import HTMLParser

import pytest

from vsehub.report.pages.study import Grid, Part, shades, study_markdown, study_page

HOSTILE = 'a<b> | "c" & \n d'


class Cells(HTMLParser):
    """Each row's cells as text, and the shade of those that have one."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.shades, self.inside = [], [], False
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.inside = True
            self.rows[-1].append("")
            if style := dict(attributes).get("style"):
                self.shades.append((self.rows[-1], float(style.removeprefix("--heat: "))))

    def handle_endtag(self, tag):
        self.inside = self.inside and tag not in ("td", "th")

    def handle_data(self, data):
        if self.inside:
            self.rows[-1][-1] += data


def test_page_and_markdown_have_the_same_cells():
    values = [[None, 1.0, 3.0], [None, None, 2.0]]
    grid = Grid(HOSTILE, ["loss", "is", HOSTILE], [["hal", "1.0", "3.0"], [HOSTILE, "∅", "2.0"]], 1, shades(values))
    page = study_page(HOSTILE, HOSTILE, [Part(HOSTILE, [HOSTILE], [grid])])
    found = Cells(page)
    assert found.rows == [["loss", "is", HOSTILE], ["hal", "1.0", "3.0"], [HOSTILE, "∅", "2.0"]]
    assert [shade for _, shade in found.shades] == [0.0, 1.0, 0.5]
    assert "<b>" not in page
    lines = [line for line in study_markdown([Part(HOSTILE, [HOSTILE], [grid])]).splitlines() if line.startswith("|")]
    assert lines == [
        '| loss | is | a&lt;b&gt; \\| "c" &amp; d |',
        "| --- | ---: | ---: |",
        "| hal | 1.0 | 3.0 |",
        '| a&lt;b&gt; \\| "c" &amp; d | ∅ | 2.0 |',
    ]


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
