"""The page and the figures of a report: self-contained, escaped, and the same when made again."""

import base64
import re

import pytest
from html_links import assert_self_contained

from vsehub.report.build import build_report
from vsehub.report.recipes import Series
from vsehub.report.run_plots import curves, styles
from vsehub.report.runs import read_run

HOSTILE = '<script>alert(1)</script>|$\\frac{"&'


def test_the_page_is_self_contained_escapes_what_runs_say_and_is_the_same_again(tmp_path, write_run, make_evaluation):
    for label, base in (("max", 280.0), ("hal+mb", 310.0), (HOSTILE, 250.0)):
        for seed in (0, 1):
            made = [make_evaluation(base + seed, seed)]
            made.append(make_evaluation(base + 9, seed, "csls", reference="transductive", reference_set=HOSTILE))
            folder = f"{'hostile' if label == HOSTILE else label}-{seed}"
            named = {"name": f"{label}{seed}", "command": HOSTILE, "versions": {"torch": HOSTILE}}
            write_run(label, seed, rsums=(base,), evaluations=made, folder=folder, **named)
    files, again = (build_report([tmp_path / "runs"], tmp_path / out, title=HOSTILE) for out in ("out", "again"))
    page = files["index.html"].read_text()
    links = assert_self_contained(page)
    assert len(links.addresses) == 3
    for address in links.addresses:
        kind, _, content = address.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert not re.search(r'(href|src)="(?!#)', base64.b64decode(content).decode())
    assert page.index("<figure") < page.index("<table"), "the picture leads"
    text = files["table.md"].read_text()
    assert "<script" not in page + text
    rows = [line for line in text.splitlines() if re.match(r"\| (max|hal\+mb|&lt;script)", line)]
    assert len(rows) == 3 * 2
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert files.keys() == again.keys()
    for name in files:
        assert files[name].read_bytes() == again[name].read_bytes(), name


def test_a_curve_is_the_mean_of_validation_rsum_with_its_deviation(tmp_path, write_run, monkeypatch):
    """Seed 1 is 1 above seed 0 and stops after three epochs."""
    runs = [read_run(write_run("hal", seed, rsums=(300.0,), epochs=4 - seed), f"run{seed}") for seed in (0, 1)]
    monkeypatch.setattr("vsehub.report.run_plots.render", lambda figure, *_: figure)
    series = Series("a", "b", "hal", "")
    axes = curves(runs, {"run0": series, "run1": series}, styles([series]), "curve").axes[0]
    (line,) = axes.lines
    assert line.get_xdata().tolist() == [1, 2, 3, 4]
    assert line.get_ydata().tolist() == pytest.approx([120.5, 210.5, 255.5, 277.5])
    first = [y for x, y in axes.collections[0].get_paths()[0].vertices if x == 1]
    assert (min(first), max(first)) == pytest.approx((120.5 - 0.5**0.5, 120.5 + 0.5**0.5))
