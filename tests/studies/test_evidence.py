"""Claims held against results, and every study rendered again from its tables: not one byte may change."""

import shutil
import sys
from pathlib import Path

import pandas as pd
import pytest
from looped import looped

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/results.csv"))
sys.path.insert(0, str(EXPERIMENTS))

import evidence  # noqa: E402 (in experiments/, found by the line above)

from vsehub.checks import InputError  # noqa: E402


def results(**cases):
    rows = [(loss, seed, value) for loss, values in cases.items() for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["loss", "seed", "rsum"])


def expected(higher, lower):
    row = ["a leads b", "paper, table 1", "rsum", higher, lower, 10.0, None]
    return pd.DataFrame([row], columns=evidence.EXPECTED)


@looped(
    ("a", "b", "outcome"),
    [
        ([10, 12], [1, 3], "holds"),
        ([1, 3], [10, 12], "contradicted"),
        ([10, 12], [9, 11], "within the spread"),
        ([3, 3], [3, 3], "within the spread"),  # a tie, no spread at all
        ([10], [1, 2], "too few seeds"),
        ([10, 11], [], "not measured"),
    ],
)
def test_an_outcome_follows_lead_and_spread(a, b, outcome):
    assert evidence.judged(results(a=a, b=b), expected("a", "b"))["outcome"].tolist() == [outcome]


def test_pairs_are_judged_run_by_run():
    frame = results(a=[100.0, 200.0, 300.0], b=[99.0, 198.9, 299.0])  # the seeds differ far more than the cases
    claims = expected("a", "b")
    assert evidence.judged(frame, claims)["outcome"].item() == "within the spread"
    line = evidence.judged(frame, claims, paired=True).iloc[0]
    assert line["outcome"] == "holds"
    assert line["difference"] == pytest.approx(3.1 / 3)
    assert line["spread"] == pytest.approx(2 * pd.Series([1.0, 1.1, 1.0]).std())


def test_only_common_seeds_are_paired():
    line = evidence.judged(results(a=[1.0, 2.0, 50.0], b=[0.0, 1.1]), expected("a", "b"), paired=True).iloc[0]
    assert (line["seeds"], line["measured_higher"]) == (2, 1.5)


def test_a_seed_twice_is_refused():
    frame = pd.concat([results(a=[1, 2], b=[1, 2])] * 2)
    with pytest.raises(InputError, match="a seed twice"):
        evidence.judged(frame, expected("a", "b"))


def test_sentences_name_every_claim_once():
    frame = evidence.judged(results(a=[10, 12], b=[1, 3]), pd.concat([expected("a", "b"), expected("b", "a")]))
    text = evidence.verdict(frame)
    assert text.count("a leads b") == 2
    assert "1 of 2 published claims hold" in text
    assert "contradicted: a leads b" in text
    assert "10.0 / –" in evidence.judged_table(frame)


def test_long_lists_are_counted_but_what_contradicts_is_named():
    claims = pd.concat([expected("a", "b")] * 9 + [expected("b", "a")] * 9)
    text = evidence.verdict(evidence.judged(results(a=[10, 12], b=[1, 3]), claims))
    assert "9 of 18 published claims hold: 9 (in the table)." in text
    assert text.count("a leads b") == 9


def test_a_page_without_marks_is_refused(tmp_path):
    page = tmp_path / "README.md"
    page.write_text("words\n<!-- generated: verdict -->\nold\n<!-- end of the generated part -->\nmore\n")
    evidence.renew(page, "new\n", "verdict")
    assert page.read_text().split("\n") == [
        "words",
        "<!-- generated: verdict -->",
        "",
        "new",
        "",
        "<!-- end of the generated part -->",
        "more",
        "",
    ]
    with pytest.raises(InputError, match="has no part"):
        evidence.renew(page, "new", "table")


@pytest.mark.parametrize("study", STUDIES)
def test_a_study_is_whole_and_rendering_changes_nothing(study, script, tmp_path):
    own = EXPERIMENTS / study
    headings = {line.strip("# ") for line in (own / "README.md").read_text().splitlines() if line.startswith("## ")}
    assert headings >= {"Claim", "Command", "Verdict", "Figures"}
    assert (own / "expected.csv").is_file()
    copy = tmp_path / study
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "table.md").write_text("stale")
    for picture in (copy / "figures").glob("*"):
        picture.unlink()
    script(own / "render.py", copy)
    for path in sorted(path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert (copy / path.relative_to(own)).read_bytes() == path.read_bytes(), path.name
