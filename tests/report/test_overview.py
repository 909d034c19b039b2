"""The chart and the sentence with which a report begins: intervals over images and seeds, and what may be claimed."""

import re

import numpy as np
import pandas as pd
import pytest

from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.results import conclusion, intervals, results
from vsehub.report.runs import read_runs
from vsehub.report.statistics import COLUMNS


def write(write_run, make_evaluation, leads, seeds=(0, 1, 2), criteria=("nns", "csls")):
    for label, lead in leads.items():
        for seed in seeds:
            parts = {}
            for number, criterion in enumerate(criteria):
                random = np.random.default_rng([seed, number])
                parts[criterion] = 290 + lead + 5 * number + seed + random.normal(0, 8, 500)
            made = [
                make_evaluation(one.mean(), seed, criterion=criterion, contributions=one.tolist())
                for criterion, one in parts.items()
            ]
            write_run(label, seed, evaluations=made)


def test_intervals_hold_the_mean_over_seeds(tmp_path, write_run, make_evaluation):
    write(write_run, make_evaluation, {"hal": 20, "sum": 0})
    runs = read_runs([tmp_path / "runs"])
    series = series_of(runs)
    found = intervals(runs, series, results(runs, series))
    assert len(found) == 4
    for _, row in found.iterrows():
        assert row["low"] < row["rsum"] < row["high"]
        assert row["least"] < row["rsum"] < row["most"]
        assert row["most"] - row["least"] == pytest.approx(2, abs=2)
        assert row["high"] - row["low"] == pytest.approx(2 * 1.96 * 8 / 500**0.5 / 3**0.5, rel=0.35)
        assert row["seeds"] == 3


def outcomes(*rows):
    frame = pd.DataFrame([dict.fromkeys(COLUMNS, 0.0) | row for row in rows])
    return frame


def test_only_what_is_apart_is_said():
    apart = {"family": "losses under nns", "outcome": "apart"}
    said = conclusion(
        outcomes(
            apart | {"one": "HAL", "other": "SUM", "difference": 9.0},
            apart | {"one": "MAX", "other": "HAL", "difference": -9.0},
            apart | {"one": "MAX", "other": "SUM", "outcome": "–", "difference": 1.0},
        )
    )
    assert said.startswith("Apart, over images and seeds: under nns, HAL above SUM, MAX.")
    assert "MAX above" not in said
    nothing = outcomes(apart | {"one": "MAX", "other": "SUM", "outcome": "apart on other images", "difference": 1.0})
    assert conclusion(nothing).startswith("Nothing is apart")
    few = outcomes(apart | {"one": "MAX", "other": "SUM", "outcome": "too few seeds", "difference": 50.0})
    assert "takes 3 seeds" in conclusion(few)
    assert "takes 3 seeds" in conclusion(outcomes().reindex(columns=[*COLUMNS, "family"]))


@pytest.mark.usefixtures("undrawn")
def test_the_page_leads_with_it_and_the_tests_are_folded(tmp_path, write_run, make_evaluation):
    write(write_run, make_evaluation, {"hal": 20, "sum": 0})
    written = build_report([tmp_path / "runs"], tmp_path / "out")
    page = written["index.html"].read_text()
    chart, claim, table, tests = (
        page.index(words) for words in ("rsum of each loss, plain", "Apart, over images", "<table", "<summary>4 paired")
    )
    assert chart < claim < table < tests
    assert "hal above sum" in page[claim : claim + 200]
    assert (tmp_path / "out" / "figures" / "overview.png").is_file()
    assert "95 % over images" in written["table.md"].read_text()
    assert "Apart, over images" in written["table.md"].read_text()


@pytest.mark.usefixtures("undrawn")
def test_each_test_set_has_a_section_of_its_own(tmp_path, write_run, make_evaluation):
    """A run under noise shares the clean test set; a run without a fingerprint stands apart where others have one."""
    facts = {"clean_fingerprint": "train", "protocol": "captions", "rate": 0.2, "index": None}
    for seed in (0, 1, 2):
        for test, label, lead, noise in (
            ("one", "hal", 20, {}),
            ("one", "sum", 0, {"noise": facts}),
            ("two", "hal", 40, {}),
            (None, "hal", 60, {}),
        ):
            parts = 290 + lead + seed + np.random.default_rng([seed, lead]).normal(0, 8, 500)
            write_run(
                label,
                seed,
                folder=f"{label}-{test}-{seed}",
                data={"train": {"fingerprint": f"noisy{seed}" if noise else "train"}}
                | ({"test": {"fingerprint": test}} if test else {}),
                evaluations=[make_evaluation(parts.mean(), seed, contributions=parts.tolist())],
                **noise,
            )
    names = ["scenes (test one)", "scenes (test two)", "scenes (test unknown)"]
    written = build_report([tmp_path / "runs"], tmp_path / "out")
    means = pd.read_csv(written["table.csv"])
    assert means[["dataset", "label", "n"]].values.tolist() == [
        *([names[0], label, 3] for label in ("sum", "hal")),
        *([name, "hal", 3] for name in names[1:]),
    ]
    assert sorted(set(pd.read_csv(written["results.csv"])["dataset"])) == names
    assert "paired.csv" not in written, "trained with and without noise"
    for stem in ("overview", "recalls", "occurrences", "rsum-over-epochs"):
        assert sum(name.startswith(f"figures/{stem}-") and name.endswith(".png") for name in written) == 3, stem
    heads = re.findall(r"<h2>(scenes.*?) ·", written["index.html"].read_text())
    assert heads == names
    sections = written["table.md"].read_text().split("\n## ")
    for name in names:
        (section,) = [part for part in sections if part.startswith(name)]
        assert not any(other in section for other in names if other != name)
    assert sum(name in sections[0] for name in names) in (0, 3), "no table above the sections"


@pytest.mark.usefixtures("undrawn")
def test_without_values_of_single_images_there_is_no_chart(tmp_path, write_run, make_evaluation):
    write_run("hal", 0, evaluations=[make_evaluation(300.0, 0)])
    page = build_report([tmp_path / "runs"], tmp_path / "out")["index.html"].read_text()
    assert "rsum of each loss, plain" not in page
