"""The plot of k-occurrences, which a template draws."""

import re

import numpy as np
import pytest
from looped import looped

from vsehub.report.pages.curves import occurrence_curves, ticks


@looped("counts", [[0, 0, 3, 1, 1, 25], [1, 1, 1], [2], [0, 7, 1000]])
def test_each_step_is_the_share_of_items_that_at_least_so_many_queries_find(counts):
    occurrences, items = (part.tolist() for part in np.unique(counts, return_counts=True))
    svg = occurrence_curves({"a<b": {"occurrences": occurrences, "items": items}}, 10, 1.5).svg.decode()
    path, dot_x, dot_y = re.search(r'<path d="([^"]+)"[^>]*/><circle cx="([^"]+)" cy="([^"]+)"', svg).groups()
    begin, *steps = path.split("V")
    drawn = [tuple(map(float, step.split("H"))) for step in steps]
    distinct = sorted(set(counts) - {0})
    shares = [sum(count >= least for count in counts) / len(counts) for least in distinct]
    width, height = (398 - 62) / np.log(1.15 * distinct[-1] / 0.9), (262 - 10) / np.log(1.3**2 / shares[-1])
    wanted = np.stack([10 - height * np.log(np.divide(shares, 1.3)), 62 + width * np.log(np.divide(distinct, 0.9))], 1)
    assert np.abs(np.subtract(drawn, wanted)).max() < 0.06
    assert (dot_y, dot_x) == tuple(steps[-1].split("H"))
    assert begin.split()[1] == steps[0].split("H")[0]
    assert f"a&lt;b: {100 * counts.count(0) / len(counts):.1f} % never" in svg


def test_ticks():
    assert ticks(0.9, 60) == [1, 2, 5, 10, 20, 50]
    assert ticks(0.0005, 1.3) == pytest.approx([0.001, 0.01, 0.1, 1])
