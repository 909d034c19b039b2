"""Claims held against results, and every study rendered again from its tables: not one byte may change."""

import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from looped import looped
from scipy import stats

from experiments import evidence
from vsehub.checks import InputError

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
STUDIES = sorted(path.parent.name for path in EXPERIMENTS.glob("*/results.csv"))


def results(**cases):
    rows = [(loss, seed, value) for loss, values in cases.items() for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["loss", "seed", "rsum"]).assign(images=500)


def expected(higher, lower):
    row = ["a leads b", "paper, table 1", "rsum", higher, lower, 10.0, None]
    return pd.DataFrame([row], columns=evidence.EXPECTED)


@looped(
    ("a", "b", "outcome"),
    [
        ([30, 32, 31], [1, 3, 2.5], "holds over seeds"),
        ([1, 3, 2.5], [30, 32, 31], "contradicted over seeds"),
        ([10, 12, 14], [9, 14, 11], "not told apart"),
        ([3, 3, 3], [3, 3, 3], "not told apart"),  # a tie, no deviation at all
        ([10, 12], [1, 2], "too few seeds"),
        ([10, 11, 12], [], "not measured"),
    ],
)
def test_an_outcome_follows_the_paired_test_over_seeds(a, b, outcome):
    assert evidence.judged(results(a=a, b=b), expected("a", "b"))["outcome"].tolist() == [outcome]


def test_claims_are_tested_seed_by_seed_and_corrected_over_the_table():
    frame = results(a=[100.0, 200.0, 300.0], b=[97.0, 196.0, 296.5])  # the seeds differ far more than the cases
    line = evidence.judged(frame, expected("a", "b")).iloc[0]
    assert line["outcome"] == "holds over seeds"
    assert line["difference"] == pytest.approx(3.5)
    assert line["deviation"] == pytest.approx(0.5)
    assert line["p"] == line["holm"] == pytest.approx(stats.ttest_1samp([3.0, 4.0, 3.5], 0).pvalue)
    many = evidence.judged(frame, pd.concat([expected("a", "b")] * 9, ignore_index=True))
    assert many["holm"].tolist() == pytest.approx([9 * line["p"]] * 9)
    assert set(many["outcome"]) == {"not told apart"}


def test_seeds_that_agree_are_floored_at_a_step_of_the_metric():
    line = evidence.judged(results(a=[4.0, 5.0, 6.0], b=[3.0, 4.0, 5.0]), expected("a", "b")).iloc[0]
    assert line["p"] == pytest.approx(stats.ttest_1samp([0.8, 1.0, 1.2], 0).pvalue)  # rsum of 500 images: 0.2
    few = evidence.judged(results(a=[4.0, 5.0, 6.0], b=[3.0, 4.0, 5.0]), expected("a", "b"), images=20).iloc[0]
    assert few["p"] > 0.5


def test_only_common_seeds_are_paired():
    line = evidence.judged(results(a=[1.0, 2.0, 50.0], b=[0.0, 1.1]), expected("a", "b")).iloc[0]
    assert (line["seeds"], line["measured_higher"]) == (2, 1.5)


def test_a_seed_twice_is_refused():
    frame = pd.concat([results(a=[1, 2], b=[1, 2])] * 2)
    with pytest.raises(InputError, match="a seed twice"):
        evidence.judged(frame, expected("a", "b"))


def test_the_verdict_counts_all_and_names_what_is_decided():
    claims = pd.concat([expected("a", "b"), expected("b", "a")], ignore_index=True)
    claims["claim"] = ["a leads b", "b leads a"]
    frame = evidence.judged(results(a=[30, 32, 31], b=[1, 3, 2.5]), claims)
    assert evidence.verdict(frame) == (
        "Of 2 claims: holds over seeds 1 (a leads b), contradicted over seeds 1 (b leads a). The mean difference has "
        "the claimed sign in 1 of 2."
    )
    assert "10.0 / –" in evidence.judged_table(frame).markdown()


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


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_is_whole_and_rendering_changes_nothing(name, study, tmp_path):
    own = EXPERIMENTS / name
    headings = {line.strip("# ") for line in (own / "README.md").read_text().splitlines() if line.startswith("## ")}
    assert headings >= {"Claim", "Command", "Verdict", "Figures"}
    assert (own / "expected.csv").is_file()
    copy = tmp_path / name
    shutil.copytree(own, copy, ignore=shutil.ignore_patterns("__pycache__"))
    for picture in (copy / "figures").glob("*"):
        picture.unlink()
    study(name, "render", copy)
    for path in sorted(path for path in own.rglob("*") if path.is_file() and "__pycache__" not in path.parts):
        assert (copy / path.relative_to(own)).read_bytes() == path.read_bytes(), path.name


@pytest.mark.parametrize(
    "name",
    [
        *("demo", "diagnosis", "no_match", "pretrained", "regularisation", "strong"),
    ],
)
def test_tables_without_claims_follow_from_their_rows(name, study, tmp_path):
    copy = tmp_path / name
    shutil.copytree(EXPERIMENTS / name, copy)
    page = copy / "README.md"
    written = page.read_text()
    assert written.count("\n| ") >= 4
    bare = re.sub(r"(<!-- generated.*? -->).*?(<!-- end)", r"\1\n\2", written, flags=re.DOTALL)
    assert bare != written
    page.write_text(bare)
    study(name, "render", copy)
    assert page.read_text() == written
