"""Aggregation, paired tests and the published table: the numbers and the notes on them."""

import json
import re
import statistics

import numpy as np
import pandas as pd
import pytest

from vsehub.checks import InputError
from vsehub.report.build import build_report
from vsehub.report.statistics import Pair, compare


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """The figures have tests of their own; drawing them here would take most of the time."""
    monkeypatch.setattr("vsehub.report.build.draw", lambda *_: [])


def report(tmp_path, **options):
    files = build_report([tmp_path / "runs"], tmp_path / "out", **options)
    return files, pd.read_csv(files["table.csv"], keep_default_na=False, na_values=[""])


def squeezed(file):
    """The text of a file, without the spaces that align its tables."""
    return re.sub(" +", " ", file.read_text())


def test_mean_and_sample_deviation_over_seeds(tmp_path, write_run):
    values = [301.25, 298.5, 305.125]
    for seed, rsum in enumerate(values):
        write_run("hal", seed, rsums=(rsum,))
    write_run("max", 7, rsums=(280.0,))
    files, table = report(tmp_path)
    hal = table[table["label"] == "hal"].iloc[0]
    assert hal["rsum"] == pytest.approx(statistics.mean(values), rel=1e-12)
    assert hal["rsum std"] == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert (hal["n"], hal["seeds"], hal["wall_seconds"]) == (3, "0, 1, 2", 61.0)
    lone = table[table["label"] == "max"].iloc[0]
    assert pd.isna(lone["rsum std"])
    row = next(line for line in squeezed(files["table.md"]).splitlines() if "| max |" in line)
    assert "| none | 1 (7) |" in row
    assert "| 280.0 |" in row
    results = pd.read_csv(files["results.csv"])
    assert results["rsum"].tolist() == [*values, 280.0]
    assert results["hubness/i2t/skew_1"].eq(2.5).all()


def test_the_facts_below_name_protocol_seeds_data_and_hardware(tmp_path, write_run):
    write_run("hal", 3)
    text = report(tmp_path)[0]["table.md"].read_text()
    for told in (
        "protocol: single, test split: 500 images and 2,500 texts, one ranking\n",
        "seeds: 3\n",
        "train 2,000 images, 10,000 captions (ab12cd34ef56)",
        "hardware: Some CPU, 2 cores, 23 GB memory, no GPU\n",
    ):
        assert told in text


@pytest.fixture
def write_tested(write_run, make_evaluation):
    """A function that writes a run whose evaluations hold each image's part of rsum, all a little apart by seed."""

    def write(label, seed, criteria=("nns",), lead=0.0, **changes):
        random = np.random.default_rng([seed, len(label)])
        parts = 290 + lead + seed + random.normal(0, 8, 500)
        evaluations = []
        for number, name in enumerate(criteria):
            own = parts + number * 4 + random.normal(0, 1, 500)
            evaluations.append(make_evaluation(own.mean(), seed, name, contributions=own.tolist()))
        return write_run(label, seed, evaluations=evaluations, **changes)

    return write


def test_paired_tests_of_losses_and_criteria(tmp_path, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed, ("nns", "csls"), lead=20)
        write_tested("max", seed)
        write_tested("sum", seed, lead=0.01)
    files, _ = report(tmp_path)
    tests = pd.read_csv(files["paired.csv"])
    assert tests[["family", "one", "other"]].values.tolist() == [
        ["losses under nns", "hal", "sum"],
        ["losses under nns", "hal", "max"],
        ["losses under nns", "sum", "max"],
        ["criteria after hal", "csls", "nns"],
    ]
    assert (tests["outcome"] == "apart").tolist() == [True, True, False, True]
    first = tests.iloc[0]
    cases = {}
    for label in ("hal", "sum", "max"):
        cases[label] = {}
        for seed in (0, 1, 2):
            file = tmp_path / "runs" / f"scenes-{label}-{seed}" / "evaluations" / "test-nns-0.json"
            cases[label][seed] = np.array(json.loads(file.read_text())["contributions"])
    expected = compare(cases, [Pair("hal", "sum"), Pair("hal", "max"), Pair("sum", "max")]).iloc[0]
    for name in ("difference", "low", "high", "p_images", "holm_images", "holm_seeds"):
        assert first[name] == pytest.approx(expected[name], rel=1e-12)
    for name in ("table.md", "paired.md", "index.html"):
        text = files[name].read_text()
        assert "Only “apart”, both p below 0.05, is a claim." in text
        assert f"{first['difference']:+.1f}" in text


def test_one_ranking_under_two_names_is_one_test(tmp_path, write_run, make_evaluation):
    """As the inverted softmax and transductive QB-Norm of one β."""
    random = np.random.default_rng(5)
    for seed in (0, 1, 2):
        plain, corrected = 280 + seed + random.normal(0, 8, (2, 500))
        named = {"nns": plain, "is": corrected + 9, "qb_norm": corrected + 9, "csls": corrected + 5}
        evaluations = [
            make_evaluation(own.mean(), seed, name, contributions=own.tolist()) for name, own in named.items()
        ]
        write_run("hal", seed, evaluations=evaluations)
    tests = pd.read_csv(report(tmp_path)[0]["paired.csv"])
    assert tests["one"].tolist() == ["is", "csls"]


@pytest.mark.parametrize(
    ("seeds", "changes"),
    [
        ((0, 1), {}),  # too few seeds
        ((0,), {}),
        ((0, 1, 2), {"data": {"train": {"fingerprint": "ff"}, "test": {"fingerprint": "99aa"}}}),  # other training data
    ],
    ids=["two seeds", "one seed", "other data"],
)
def test_nothing_is_claimed_of_few_seeds_or_different_data(tmp_path, write_tested, seeds, changes):
    for seed in seeds:
        write_tested("hal", seed, lead=50)
        write_tested("max", seed, **changes)
    files, _ = report(tmp_path)
    text = files["index.html"].read_text()
    if changes:
        assert "paired.csv" not in files
        assert "or different data): nothing is claimed beyond mean ± std" in text
        assert "recipes differ in more than the loss" in text
    else:
        assert pd.read_csv(files["paired.csv"])["outcome"].tolist() == ["too few seeds"]


def test_nothing_is_claimed_without_values_of_single_images(tmp_path, write_run, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed, lead=50)
        write_run("max", seed, rsums=(290.0 + seed,))
        write_tested("sum", seed)
    write_tested("sum", 2, folder="again")  # a seed twice is no pair of anything
    files, _ = report(tmp_path)
    assert "paired.csv" not in files
    for name in ("table.md", "index.html"):
        assert "nothing is claimed beyond mean ± std" in files[name].read_text()
    assert "counted more than once" in files["table.md"].read_text()


@pytest.mark.parametrize("contributions", [[1.0], [1.0] * 499 + ["2"], [True] * 500])
def test_contributions_that_are_no_numbers_of_the_images_are_refused(
    tmp_path, write_run, make_evaluation, contributions
):
    write_run(evaluations=[make_evaluation(300.0, contributions=contributions)])
    with pytest.raises(InputError, match="not one number for each image"):
        report(tmp_path)


def test_different_recipes_are_never_averaged(tmp_path, write_run):
    write_run("hal", 0, rsums=(310.0,))
    write_run("hal", 1, rsums=(320.0,), config={"optimizer": {"lr": 0.1}})
    files, table = report(tmp_path)
    assert table[["variant", "rsum"]].values.tolist() == [["optimizer.lr 0.001", 310.0], ["optimizer.lr 0.1", 320.0]]
    assert "optimizer.lr 0.001 (hal (optimizer.lr 0.001))" in files["table.md"].read_text()


def test_a_studys_name_parts_no_recipes(tmp_path, write_run):
    write_run("hal", 0, rsums=(310.0,))
    write_run("hal", 1, rsums=(320.0,), config={"study": "first"})
    assert report(tmp_path)[1][["n", "rsum"]].values.tolist() == [[2, 315.0]]


def test_recipes_that_differ_between_losses_are_reported(tmp_path, write_run):
    write_run("hal", 0, config={"optimizer": {"lr": 0.001}})
    write_run("max", 0, config={"optimizer": {"lr": 2e-4}})
    text = report(tmp_path)[0]["table.md"].read_text()
    assert "optimizer.lr 0.0002 (max), 0.001 (hal)" in text


def test_repeated_seeds_and_code_versions_are_noted(tmp_path, write_run):
    write_run("hal", 0, folder="a")
    write_run("hal", 0, folder="b", git={"sha": "fedcba9876", "dirty": True})
    text = report(tmp_path)[0]["table.md"].read_text()
    assert (
        "seed 0 counted more than once, ± is not over seeds only, not tested: hal, nns, single, scenes (a, b)" in text
    )
    assert "2 versions of the code: vsehub 0.1.0, git 01234567; vsehub 0.1.0, git fedcba98" in text
    assert "uncommitted changes in the code of 1 of 2 runs" in text


def test_criterion_parameters_part_rows_only_where_one_run_has_several(tmp_path, write_run, make_evaluation):
    kept = dict(reference="transductive", reference_set="the test queries")
    for seed in (0, 1):
        betas = [make_evaluation(300.0 + beta, seed, "is", parameters={"beta": beta}, **kept) for beta in (10, 30)]
        own = make_evaluation(300.0 + seed, seed, "rgm", parameters={"lam": 1.0 + seed}, **kept)
        write_run("hal", seed, evaluations=[*betas, own])
    files, table = report(tmp_path)
    assert table[["criterion", "n"]].values.tolist() == [["is", 2], ["is", 2], ["rgm", 2]]
    text = squeezed(files["table.md"])
    assert "| is (beta 10) | transductive | 2 (0, 1) |" in text
    assert "parameters of rgm differ between runs on scenes: lam 1.0; lam 2.0" in text
    assert "counted more than once" not in text


def test_rounded_scores_have_a_row_of_their_own(tmp_path, write_run, make_evaluation):
    for seed in (0, 1):
        both = [make_evaluation(300.0, seed, "nns"), make_evaluation(310.0, seed, "nns", precision="bf16")]
        write_run("hal", seed, evaluations=both)
    files, table = report(tmp_path)
    assert table[["criterion", "n", "rsum"]].values.tolist() == [["nns", 2, 300.0], ["nns", 2, 310.0]]
    assert "| nns (precision bf16) |" in squeezed(files["table.md"])
    assert "counted more than once" not in files["table.md"].read_text()
