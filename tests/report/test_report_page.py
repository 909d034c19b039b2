"""The page and the figures: self-contained, escaped, not empty, and the same when made again."""

import base64
import itertools
import re

import matplotlib
import numpy as np
import pandas as pd
import pytest
from html_links import assert_self_contained
from PIL import Image

from vsehub.report.build import build_report
from vsehub.report.plots import NARROW, RC, _occurrence_curves, new_figure
from vsehub.report.recipes import LABEL_ORDER, Series
from vsehub.report.results import DIRECTIONS
from vsehub.report.run_plots import _occurrences, styles

HOSTILE = '<script>alert(1)</script>|$\\frac{"&'


@pytest.fixture(scope="module")
def runs(tmp_path_factory, run_writer, make_evaluation):
    """Three losses by two seeds by two criteria, one of the losses with a hostile name."""
    runs = tmp_path_factory.mktemp("page") / "runs"
    write_run = run_writer(runs)
    for label, base in (("max", 280.0), ("hal+mb", 310.0), (HOSTILE, 250.0)):
        for seed in (0, 1):
            plain = make_evaluation(base + seed, seed)
            corrected = make_evaluation(
                base + 9, seed, "csls", parameters={"k": 10}, reference="transductive", reference_set="the test queries"
            )
            folder = f"{'hostile' if label == HOSTILE else label}-{seed}"
            write_run(label, seed, rsums=(base,), evaluations=[plain, corrected], folder=folder, name=f"{label}{seed}")
    return runs


SETTINGS = {"title": HOSTILE}


@pytest.fixture(scope="module")
def files(runs):
    """The report over the runs."""
    return build_report([runs], runs.parent / "out", **SETTINGS)


def test_the_page_is_self_contained_and_escapes_what_runs_say(files):
    page = files["index.html"].read_text()
    links = assert_self_contained(page)
    assert links.tags.count("img") == 3
    assert len(links.addresses) == 6, "each figure for a screen and for a phone"
    for address in links.addresses:
        kind, _, content = address.partition(",")
        assert kind == "data:image/svg+xml;base64"
        svg = base64.b64decode(content).decode()
        assert svg.count("<path") > 20
        assert not re.search(r'(href|src)="(?!#)', svg)
    assert "&lt;script&gt;alert(1)" in page


def test_the_markdown_table_survives_a_hostile_name(files):
    text = files["table.md"].read_text()
    table = re.search(r"^## .+\n\n(?:- .+\n\n)?((?:\|.+\n)+)", text, re.M)
    rows = table[1].splitlines()
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert len(rows) == 2 + 3 * 2
    assert "<script" not in text


def test_figures_are_drawn_in_the_colours_of_their_losses(files):
    for stem in ("rsum-over-epochs", "recalls", "occurrences"):
        assert files[f"figures/{stem}.svg"].stat().st_size > 5000
        pixels = np.asarray(Image.open(files[f"figures/{stem}.png"]).convert("RGB"))
        assert min(pixels.shape[:2]) > 400
        for colour in ((0xE6, 0x9F, 0x00), (0xD5, 0x5E, 0x00)):
            near = np.abs(pixels.astype(int) - colour).max(axis=2) < 60
            assert near.sum() > 50, (stem, colour)


def test_every_loss_keeps_its_own_look():
    labels = ["infonce", "sum", "max", "knn_margin", "hal", "hal+mb", "siglip"]
    look = styles(Series("a", "b", label, "") for label in labels)
    assert len({style["color"] for style in look.values()}) == len(labels)
    assert look["hal"] == styles([Series("c", "d", "hal", "")])["hal"]
    every = styles(Series("a", "b", label, "") for label in (*LABEL_ORDER, "infonce", "nca", "siglip"))
    assert len({(one["color"], one["marker"]) for one in every.values()}) == len(every)  # more losses than colours
    two = styles(Series("a", "b", "hal", variant) for variant in ("lr 1", "lr 2"))
    first, second = two.values()
    assert first["color"] == look["hal"]["color"] != second["color"]
    assert first["linestyle"] != second["linestyle"]


def test_variants_of_a_loss_are_told_apart():
    """By colour while there are colours; by colour with line and marker beyond."""
    for number in (2, 7, 20):
        sweep = styles(Series("a", "b", "hal", f"lr {value:02}") for value in range(number))
        assert len({one["color"] for one in sweep.values()}) == min(number, 7)
        assert len({tuple(one.values()) for one in sweep.values()}) == number
    labels = ["sum", "max", "hal"]
    mixed = styles([*(Series("a", "b", one, "lr 1") for one in labels), Series("a", "b", "hal", "lr 2")])
    assert len({one["color"] for one in mixed.values()}) == 4
    many = styles(Series("a", "b", one, f"lr {value}") for one in LABEL_ORDER for value in (1, 2, 3))
    assert len({tuple(one.values()) for one in many.values()}) == len(many)


@pytest.mark.parametrize("largest", [4, 9, 30, 300, 20_000])
def test_tick_labels_of_counts_do_not_overlap(largest):
    counts = np.unique(np.geomspace(3 if largest < 100 else 1, largest, 12).astype(int))
    histogram = {"occurrences": [0, *counts.tolist()], "items": [50, *range(len(counts) + 3, 3, -1)]}
    with matplotlib.rc_context(RC):
        figures = [_occurrence_curves({"nns": histogram}, 10, 2.0, new_figure(width, 4.3)) for width in (6.4, NARROW)]
        series = Series("a", "b", "hal", "")
        pooled = pd.Series(histogram["items"], histogram["occurrences"], dtype=float)
        both = {(series, side): pooled for side in DIRECTIONS}
        for size in ((9.4, 4.2), (NARROW, 7.4)):
            figures.append(_occurrences(both, styles([series]), 10, new_figure(*size)))
        for figure in figures:
            figure.canvas.draw()
            for axes in figure.axes:
                low, high = axes.get_xlim()
                labels = [*axes.get_xticklabels(), *axes.get_xticklabels(minor=True)]
                shown = [one for one in labels if one.get_text() and low <= one.get_position()[0] <= high]
                boxes = [one.get_window_extent() for one in shown]
                boxes.sort(key=lambda box: box.x0)
                assert boxes
                assert all(left.x1 < right.x0 for left, right in itertools.pairwise(boxes))


def test_one_criterion_and_one_run_draw_too(tmp_path, write_run):
    write_run("hal", 0)
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    assert "Recalls by loss (criterion nns)" in files["index.html"].read_text()


@pytest.mark.usefixtures("undrawn")
def test_several_settings_get_a_section_and_a_figure_each(tmp_path, write_run):
    write_run("hal", 0)
    write_run("hal", 0, name="other", dataset="coco")
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    assert "figures/occurrences-2-scenes-gru-image-cnn-test-single.png" in files
    page = files["index.html"].read_text()
    assert page.count("· test split · protocol single</h2>") == 2


def test_a_report_made_again_is_the_same(files, runs, tmp_path):
    again = build_report([runs], tmp_path / "again", **SETTINGS)
    assert files.keys() == again.keys()
    for name in files:
        assert files[name].read_bytes() == again[name].read_bytes(), name
