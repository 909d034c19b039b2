"""The page and the figures of a report: self-contained, escaped, not empty, and the same when made again."""

import base64
import re

import pytest
from html_links import assert_self_contained

from vsehub.report.build import build_report
from vsehub.report.recipes import LABEL_ORDER, Series
from vsehub.report.run_plots import styles

HOSTILE = '<script>alert(1)</script>|$\\frac{"&'
STEMS = ("rsum-over-epochs", "overview", "occurrences")


@pytest.fixture(scope="module")
def runs(tmp_path_factory, run_writer, make_evaluation):
    """Three losses by two seeds by two criteria, one of the losses with a hostile name."""
    runs = tmp_path_factory.mktemp("page") / "runs"
    write_run = run_writer(runs)
    for label, base in (("max", 280.0), ("hal+mb", 310.0), (HOSTILE, 250.0)):
        for seed in (0, 1):
            made = [make_evaluation(base + seed, seed)]
            made.append(make_evaluation(base + 9, seed, "csls", reference="transductive", reference_set="the queries"))
            folder = f"{'hostile' if label == HOSTILE else label}-{seed}"
            write_run(label, seed, rsums=(base,), evaluations=made, folder=folder, name=f"{label}{seed}")
    return runs


@pytest.fixture(scope="module")
def files(runs):
    return build_report([runs], runs.parent / "out", title=HOSTILE)


def test_the_page_is_self_contained_and_escapes_what_runs_say(files):
    page = files["index.html"].read_text()
    links = assert_self_contained(page)
    assert len(links.addresses) == len(STEMS)
    for address in links.addresses:
        kind, _, content = address.partition(",")
        assert kind == "data:image/svg+xml;base64"
        assert not re.search(r'(href|src)="(?!#)', base64.b64decode(content).decode())
    assert "&lt;script&gt;alert(1)" in page
    assert page.index("<figure") < page.index("<table"), "the picture leads"


def test_the_markdown_table_survives_a_hostile_name(files):
    text = files["table.md"].read_text()
    rows = [line for line in text.splitlines() if line.startswith("| scenes")]
    assert len(rows) == 3 * 2
    assert len({len(re.findall(r"(?<!\\)\|", row)) for row in rows}) == 1
    assert "<script" not in text


@pytest.mark.parametrize("labels", [["hal"], ["infonce", "sum", "hal", "siglip"], [*LABEL_ORDER, "infonce", "nca"]])
@pytest.mark.parametrize("variants", [1, 2, 7])
def test_every_loss_and_variant_looks_different(labels, variants):
    found = styles(
        Series("a", "b", label, f"lr {number}" if number else "") for label in labels for number in range(variants)
    )
    assert len({tuple(look.values()) for look in found.values()}) == len(labels) * variants
    assert len({look["color"] for look in found.values()}) == min(7, len(labels) * variants)
    assert found["hal"]["color"] == styles([Series("c", "d", "hal", "")])["hal"]["color"]


@pytest.mark.usefixtures("undrawn")
def test_several_settings_get_a_section_and_a_figure_each(tmp_path, write_run):
    write_run("hal", 0)
    write_run("hal", 0, name="other", dataset="coco")
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    assert "figures/occurrences-2-scenes-gru-image-cnn-test-single.png" in files
    assert files["index.html"].read_text().count("· test split · protocol single</h2>") == 2


def test_a_report_made_again_is_the_same(files, runs, tmp_path):
    again = build_report([runs], tmp_path / "again", title=HOSTILE)
    assert files.keys() == again.keys()
    for name in files:
        assert files[name].read_bytes() == again[name].read_bytes(), name
