"""The numbers of a report: means over seeds, paired tests, what is never averaged, and the notes on it all."""

import json
import re
import statistics

import numpy as np
import pandas as pd
import pytest

from vsehub.checks import InputError
from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.results import conclusion, intervals, results
from vsehub.report.runs import read_runs
from vsehub.report.statistics import COLUMNS, Pair, compare


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """The figures have tests of their own; drawing them here would take most of the time."""
    monkeypatch.setattr("vsehub.report.build.draw", lambda *_: [])


def report(tmp_path):
    """The text of table.md without the spaces that align it, table.csv, and the files."""
    files = build_report([tmp_path / "runs"], tmp_path / "out")
    text = re.sub(" +", " ", files["table.md"].read_text())
    return text, pd.read_csv(files["table.csv"], keep_default_na=False, na_values=[""]), files


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


def test_mean_and_sample_deviation_over_seeds(tmp_path, write_run):
    values = [301.25, 298.5, 305.125]
    for seed, rsum in enumerate(values):
        write_run("hal", seed, rsums=(rsum,))
    write_run("max", 7, rsums=(280.0,))
    text, table, files = report(tmp_path)
    hal, lone = (table[table["label"] == label].iloc[0] for label in ("hal", "max"))
    assert hal["rsum"] == pytest.approx(statistics.mean(values), rel=1e-12)
    assert hal["rsum std"] == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert (hal["n"], hal["seeds"], hal["wall_seconds"]) == (3, "0, 1, 2", 61.0)
    assert pd.isna(lone["rsum std"])
    assert re.search(r"\| max \|.*\| none \| 1 \(7\) \|.*\| 280\.0 \|", text)
    frame = pd.read_csv(files["results.csv"])
    assert frame["rsum"].tolist() == [*values, 280.0]
    assert frame["hubness/i2t/skew_1"].eq(2.5).all()


def test_paired_tests_of_losses_and_criteria(tmp_path, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed, ("nns", "csls"), lead=20)
        write_tested("max", seed)
        write_tested("sum", seed, lead=0.01)
    text, _, files = report(tmp_path)
    tests = pd.read_csv(files["paired.csv"])
    assert tests[["family", "one", "other", "outcome"]].values.tolist() == [
        ["losses under nns", "hal", "sum", "apart"],
        ["losses under nns", "hal", "max", "apart"],
        ["losses under nns", "sum", "max", "apart on other images"],
        ["criteria after hal", "csls", "nns", "apart"],
    ]
    cases = {}
    for label in ("hal", "sum", "max"):
        files_of = [tmp_path / f"runs/scenes-{label}-{seed}/evaluations/test-nns-0.json" for seed in (0, 1, 2)]
        read = [json.loads(file.read_text())["contributions"] for file in files_of]
        cases[label] = dict(enumerate(map(np.array, read)))
    expected = compare(cases, [Pair("hal", "sum"), Pair("hal", "max"), Pair("sum", "max")]).iloc[0]
    for name in ("difference", "low", "high", "p_images", "holm_images", "holm_seeds"):
        assert tests.iloc[0][name] == pytest.approx(expected[name], rel=1e-12)
    claim = "hal above max (losses under nns)"
    assert claim in text
    assert f"{expected['difference']:+.1f}" in text
    assert claim in files["index.html"].read_text()


def test_only_what_is_apart_is_said():
    def said(*rows):
        same = {"family": "losses under nns", "one": "MAX", "other": "SUM", "outcome": "apart", "difference": 1.0}
        return conclusion(pd.DataFrame([same | row for row in rows], columns=[*COLUMNS, "family"]))

    text = said({"one": "HAL"}, {"other": "HAL", "difference": -9.0}, {"outcome": "–"})
    assert "HAL above SUM (losses under nns); HAL above MAX (losses under nns)" in text
    assert "MAX above" not in text
    assert "above" not in said({"outcome": "apart on other images"})
    for few in (said({"outcome": "too few seeds", "difference": 50.0}), said()):
        assert "takes 3 seeds" in few


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
    assert pd.read_csv(report(tmp_path)[2]["paired.csv"])["one"].tolist() == ["is", "csls"]


OTHER_DATA = {"train": {"fingerprint": "ff"}, "test": {"fingerprint": "99aa"}}


@pytest.mark.parametrize(("seeds", "changes"), [((0, 1), {}), ((0,), {}), ((0, 1, 2), {"data": OTHER_DATA})])
def test_nothing_is_claimed_of_few_seeds_or_different_data(tmp_path, write_tested, seeds, changes):
    for seed in seeds:
        write_tested("hal", seed, lead=50)
        write_tested("max", seed, **changes)
    text, _, files = report(tmp_path)
    if changes:
        assert "paired.csv" not in files
        assert "nothing is claimed" in files["index.html"].read_text()
        assert "recipes differ in more than the loss (scenes · gru+image_cnn): fingerprint of train" in text
    else:
        assert pd.read_csv(files["paired.csv"])["outcome"].tolist() == ["too few seeds"]


def test_nothing_is_claimed_without_values_of_single_images(tmp_path, write_run, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed, lead=50)
        write_run("max", seed, rsums=(290.0 + seed,))
        write_tested("sum", seed)
    write_tested("sum", 2, folder="again")  # a seed twice is no pair of anything
    text, _, files = report(tmp_path)
    assert "paired.csv" not in files
    assert "nothing is claimed" in text
    assert "seed 2 counted more than once" in text


def test_intervals_hold_the_mean_over_seeds(tmp_path, write_run, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed)
        write_run("max", seed, rsums=(290.0 + seed,))
    runs = read_runs([tmp_path / "runs"])
    found = intervals(runs, results(runs, series_of(runs))).set_index("series")
    hal, bare = found.loc["hal"], found.loc["max"]
    assert hal["low"] < hal["rsum"] < hal["high"]
    assert hal["least"] < hal["rsum"] < hal["most"]
    assert hal["high"] - hal["low"] == pytest.approx(2 * 1.96 * 8 / 500**0.5 / 3**0.5, rel=0.35)
    assert bare[["seeds", "rsum", "least", "most"]].tolist() == [3, 291, 290, 292]
    assert np.isnan(bare["low"])


@pytest.mark.parametrize(
    ("changes", "variant"),
    [
        ({"optimizer": {"lr": 0.1}}, ["optimizer.lr 0.001", "optimizer.lr 0.1"]),
        ({"study": "first"}, None),  # a study's name parts no recipes
    ],
)
def test_different_recipes_are_never_averaged(tmp_path, write_run, changes, variant):
    write_run("hal", 0, rsums=(310.0,))
    write_run("hal", 1, rsums=(320.0,), config=changes)
    _, table, _ = report(tmp_path)
    rows = (
        [[1, name, rsum] for name, rsum in zip(variant, (310.0, 320.0), strict=True)] if variant else [[2, "", 315.0]]
    )
    assert table.fillna("")[["n", "variant", "rsum"]].values.tolist() == rows


def test_notes_on_recipes_seeds_and_versions_of_the_code(tmp_path, write_run):
    write_run("hal", 0, folder="a")
    write_run("hal", 0, folder="b", git={"sha": "fedcba9876", "dirty": True})
    write_run("max", 0, config={"optimizer": {"lr": 2e-4}})
    text, _, files = report(tmp_path)
    assert re.search(r"seed 0 counted more than once.*: hal, nns, single, scenes \(a, b\)", text)
    assert "uncommitted changes in the code of 1 of 3 runs" in text
    assert "recipes differ in more than the loss (scenes · gru+image_cnn): optimizer.lr" in text
    assert "train 2,000 images, 10,000 captions (ab12cd34ef56)" in text
    page = files["index.html"].read_text()
    assert "<td>0.0002</td>" in page
    assert "Some CPU, 2 cores, 23 GB memory, no GPU" in page


def test_parameters_part_rows_only_where_one_run_has_several(tmp_path, write_run, make_evaluation):
    kept = dict(reference="transductive", reference_set="the test queries")
    for seed in (0, 1):
        betas = [make_evaluation(300.0 + beta, seed, "is", parameters={"beta": beta}, **kept) for beta in (10, 30)]
        own = make_evaluation(300.0 + seed, seed, "rgm", parameters={"lam": 1.0 + seed}, **kept)
        write_run("hal", seed, evaluations=[*betas, own, make_evaluation(300.0, seed)])
    text, table, _ = report(tmp_path)
    assert table[["criterion", "n"]].values.tolist() == [["nns", 2], ["is", 2], ["is", 2], ["rgm", 2]]
    assert "| is (beta 10) | transductive | 2 (0, 1) |" in text
    assert "parameters of rgm differ between runs on scenes: lam 1.0; lam 2.0" in text
    assert "counted more than once" not in text
    assert "rgm transductive: the test queries" in text


def test_each_test_set_has_a_section_of_its_own(tmp_path, write_tested):
    """A run without a fingerprint of its test set stands apart where others have one."""
    for test in ("one", "two", None):
        data = {"train": {"fingerprint": "train"}} | ({"test": {"fingerprint": test}} if test else {})
        write_tested("hal", 0, data=data, folder=str(test))
    names = [f"scenes (test {name})" for name in ("one", "two", "unknown")]
    text, table, files = report(tmp_path)
    assert table[["dataset", "n"]].values.tolist() == [[name, 1] for name in names]
    assert re.findall(r"<h2>(scenes.*?) ·", files["index.html"].read_text()) == names
    for section, name in zip(text.split("\n## ")[1:], names, strict=False):
        assert section.startswith(name)
        assert not any(other in section for other in names if other != name)


@pytest.fixture
def noisy(write_tested):
    """A function that writes a run under noise; its training captions are others for each seed."""

    def write(seed, protocol="captions", rate=0.2, index=None, label="hal"):
        asked = {"protocol": protocol, "rate": rate, "index": index, "seed": seed}
        facts = {"clean_fingerprint": "ab12cd34ef56", "fingerprint": "feedfacecafe", "changed": rate, **asked}
        return write_tested(
            label,
            seed,
            config={"data": {"batch_size": 128, "noise": asked}},
            folder=f"{label}-{protocol}-{rate}-{bool(index)}-{seed}",
            data={"train": {"fingerprint": f"noisy{seed}"}, "val": {"fingerprint": "val"}},
            noise=facts,
        )

    return write


def test_seeds_go_together_and_noise_apart(tmp_path, write_run, noisy):
    clean = {"train": {"fingerprint": "ab12cd34ef56"}, "val": {"fingerprint": "val"}}
    unset = {"protocol": "images", "rate": 0.0, "index": None, "seed": 0}
    write_run("hal", 0, config={}, data=clean)  # from before there was noise
    write_run("hal", 1, config={"data": {"batch_size": 128, "noise": unset}}, data=clean)
    for seed in (0, 1):
        noisy(seed)
    noisy(0, rate=0.4)
    noisy(0, protocol="images")
    noisy(2, index="some/where.npz")
    runs = read_runs([tmp_path / "runs"])
    series = series_of(runs)
    assert {(run.record["seed"], series[run.path].variant) for run in runs} == {
        *((seed, "noise none") for seed in (0, 1)),
        *((seed, "noise captions 0.2") for seed in (0, 1)),
        (0, "noise captions 0.4"),
        (0, "noise images 0.2"),
        (2, "noise captions 0.2 of index feedfacecafe"),
    }


def test_a_run_killed_at_once_is_noted_not_dropped(tmp_path, write_run):
    write_run("max", 0)
    killed = write_run("hal", 1, rsums=(), status="running", name="killed", data={}, config={}, best=None)
    (killed / "metrics.csv").unlink()
    write_run("hal", 2, rsums=(), name="unevaluated")
    _, _, files = report(tmp_path)
    for file in ("table.md", "index.html"):
        text = files[file].read_text()
        assert "unfinished, in no table: killed (killed, status running, no epoch logged)" in text
        assert "not evaluated, in no table: unevaluated (unevaluated, status finished, last epoch logged 3)" in text


def test_a_report_of_nothing_but_unfinished_runs(tmp_path, write_run):
    write_run(rsums=(), status="failed")
    text, table, _ = report(tmp_path)
    assert table.empty
    assert "No run was evaluated." in text


@pytest.mark.parametrize("contributions", [[1.0], [1.0] * 499 + ["2"], [True] * 500])
def test_contributions_that_are_no_numbers_of_the_images_are_refused(write_run, make_evaluation, contributions):
    path = write_run(evaluations=[make_evaluation(300.0, contributions=contributions)])
    with pytest.raises(InputError, match="not one number for each image"):
        read_runs([path])
