"""The numbers of a report: means over seeds, paired tests, what is never averaged, and the notes on it all."""

import json
import re
import statistics

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.results import intervals, results
from vsehub.report.runs import read_runs
from vsehub.report.statistics import compare

pytestmark = pytest.mark.usefixtures("undrawn")


@pytest.fixture
def report(tmp_path):
    """A function that builds the report: the text of table.md without the spaces that align it, and the csv tables."""

    def build(**settings):
        files = build_report([tmp_path / "runs"], tmp_path / "out", **settings)
        tables = {
            name.removesuffix(".csv"): pd.read_csv(file, keep_default_na=False, na_values=[""])
            for name, file in files.items()
            if name.endswith(".csv")
        }
        return re.sub(" +", " ", files["table.md"].read_text()), tables, files["index.html"].read_text()

    return build


@pytest.fixture
def write_tested(write_run, make_evaluation):
    """A function that writes a run whose evaluations hold each image's part of rsum, all a little apart by seed."""

    def write(label, seed, criteria=("nns",), lead=0.0, **changes):
        random = np.random.default_rng([seed, len(label)])
        parts = 290 + lead + seed + random.normal(0, 8, 500)
        evaluations = []
        for number, name in enumerate(criteria):
            sums = parts + number * 4 + random.normal(0, 1, 500)
            # as the inverted softmax and transductive QB-Norm of one β, equal rankings
            evaluations += [
                make_evaluation(sums.mean(), seed, each, contributions=sums.tolist()) for each in name.split("=")
            ]
        return write_run(label, seed, evaluations=evaluations, **changes)

    return write


def test_mean_and_sample_deviation_over_seeds(report, write_run):
    values = [301.25, 298.5, 305.125]
    for seed, rsum in enumerate(values):
        write_run("hal", seed, rsums=(rsum,))
    write_run("max", 7, rsums=(280.0,))
    text, tables, page = report()
    single, hal = (tables["table"].iloc[row] for row in (0, 1))
    assert hal["rsum"] == pytest.approx(statistics.mean(values), rel=1e-12)
    assert hal["rsum std"] == pytest.approx(statistics.stdev(values), rel=1e-12)
    assert (hal["n"], hal["seeds"], hal["wall_seconds"]) == (3, "0, 1, 2", 61.0)
    assert pd.isna(single["rsum std"])
    assert re.search(r"\| max \| nns \| 280\.0 \|.*\| 1 \(7\) \|", text)
    frame = tables["results"]
    assert frame["rsum"].tolist() == [*values, 280.0]
    assert frame["hubness/i2t/skew_1"].eq(2.5).all()
    assert "<td>vsehub train loss=max seed=7</td>" in page


def test_paired_tests_of_losses_and_criteria(report, tmp_path, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed, ("nns", "csls", "is=qb_norm"), lead=20)
        write_tested("max", seed)
        write_tested("sum", seed, lead=0.01)
    text, tables, page = report()
    assert tables["paired"][["family", "one", "other", "outcome"]].values.tolist() == [
        ["losses under nns", "hal", "sum", "apart"],
        ["losses under nns", "hal", "max", "apart"],
        ["losses under nns", "sum", "max", "apart on other images"],
        ["criteria after hal", "is", "nns", "apart"],
        ["criteria after hal", "csls", "nns", "apart"],
    ]
    cases = {}
    for label in ("hal", "sum", "max"):
        files = [tmp_path / f"runs/scenes-{label}-{seed}/evaluations/test-nns-0.json" for seed in (0, 1, 2)]
        read = [json.loads(file.read_text())["contributions"] for file in files]
        cases[label] = dict(enumerate(map(np.array, read)))
    expected = compare(cases, [("hal", "sum"), ("hal", "max"), ("sum", "max")]).iloc[0]
    for name in ("difference", "low", "high", "p_images", "holm_images", "holm_seeds"):
        assert tables["paired"].iloc[0][name] == pytest.approx(expected[name], rel=1e-12)
    for shown in (text, page):
        assert "hal above max (losses under nns)" in shown
        assert "sum above max" not in shown
        assert f"{expected['difference']:+.1f}" in shown


def test_best_values_are_bold_and_those_not_apart_from_them_marked(report, write_run, make_evaluation):
    """A larger rsum is better, a smaller skewness. Of the skewness, one p of two is below 0.05 only without Holm."""
    values = {
        "hal": ((300.0, 302.5, 305.0), (2.5, 2.5, 3.6)),
        "max": ((299.0, 303.0, 304.5), (1.5, 2.5, 3.5)),
        "sum": ((280.0, 281.0, 285.5), (3.5, 5.9, 5.5)),
        "hal+mb": ((200.0,), (6.0,)),  # no test
    }
    for label, both in values.items():
        for seed, (rsum, skew) in enumerate(zip(*both, strict=True)):
            made = make_evaluation(rsum, seed)
            made["metrics"]["hubness/i2t/skew_1"] = skew
            write_run(label, seed, evaluations=[made])
    apart, alike = (stats.ttest_rel(values["hal"][0], values[label][0]).pvalue for label in ("sum", "max"))
    assert 2 * apart < 0.05 < alike
    assert 0.025 < stats.ttest_rel(values["max"][1], values["sum"][1]).pvalue < 0.05
    text, _, page = report(columns=["rsum", "hubness/i2t/skew_1"])
    lines = [line.split(" | ")[2:4] for line in text.splitlines() if re.match(r"\| \S+ \| nns", line)]
    assert lines == [
        ["282.2 ± 2.9", "4.97 ± 1.29†"],
        ["302.2 ± 2.8†", "**2.50 ± 1.00**"],
        ["**302.5 ± 2.5**", "2.87 ± 0.64†"],
        ["200.0†", "6.00†"],
    ]
    assert page.count('<td class="n"><b>') == 2


def test_hubness_nearest_to_0_is_best_and_matchings_are_not_compared(report, write_run, make_evaluation):
    names = ("nns", "csls", "dn", "mine")
    made = [make_evaluation(300.0, criterion=name, matching=name == "mine") for name in names]
    for evaluation, skew in zip(made, (2.0, -0.5, -3.0, 0.1), strict=True):
        evaluation["metrics"]["hubness/i2t/skew_1"] = skew
    write_run("hal", 0, evaluations=made, epochs=1, best={"epoch": 0, "val/rsum": 300.0})
    text = report(columns=["hubness/i2t/skew_1"])[0]
    assert re.findall(r"\*\*-?\d.*?\*\*", text) == ["**-0.50**"]
    assert "still rising" not in text, "one epoch rises from nothing"


OTHER_DATA = {"train": {"fingerprint": "ff"}, "test": {"fingerprint": "99aa"}}


@pytest.mark.parametrize(
    ("seeds", "changes", "outcome"),
    [
        ((0, 1), {}, ["too few seeds"]),
        ((0, 1, 2), {"data": OTHER_DATA}, None),
        ((0, 1, 2), {"criteria": ()}, None),  # without values of single images
    ],
)
def test_nothing_is_claimed_of_few_seeds_different_data_or_means_alone(
    report, write_tested, tmp_path, seeds, changes, outcome
):
    for seed in seeds:
        write_tested("hal", seed, lead=50)
        write_tested("max", seed, **changes)
    write_tested("sum", 0)
    write_tested("sum", 0, folder="again")  # a seed twice is no pair of anything
    text, tables, _ = report()
    assert (tables["paired"]["outcome"].tolist() if "paired" in tables else None) == outcome
    assert "above" not in text
    assert ("fingerprint of train" in text) == ("data" in changes)
    assert "sum, nns, single, scenes (again, scenes-sum-0)" in text
    assert "| 1 (0), 2 runs |" in text
    lines = (tmp_path / "out" / "table.txt").read_text().splitlines()
    shown = {line.split()[0]: line.split("  ")[-1].strip() for line in lines if " nns " in line}
    assert (shown["hal"], shown["sum"]) == (str(len(seeds)), "1, 2 runs")


def test_intervals_hold_the_mean_over_seeds(tmp_path, write_run, write_tested):
    for seed in (0, 1, 2):
        write_tested("hal", seed)
        write_run("max", seed, rsums=(290.0 + seed,))
    runs = read_runs([tmp_path / "runs"])
    table = intervals(results(runs, series_of(runs))).set_index("series")
    hal, bare = table.loc["hal"], table.loc["max"]
    assert hal["low"] < hal["rsum"] < hal["high"]
    assert hal["least"] < hal["rsum"] < hal["most"]
    assert hal["high"] - hal["low"] == pytest.approx(2 * 1.96 * 8 / 500**0.5 / 3**0.5, rel=0.35)
    assert bare[["seeds", "rsum", "least", "most"]].tolist() == [3, 291, 290, 292]
    assert np.isnan(bare["low"])


@pytest.mark.parametrize(
    ("changes", "rsums"),
    [
        ({"optimizer": {"lr": 0.1}}, {"optimizer.lr 0.001": 310.0, "optimizer.lr 0.1": 320.0}),
        ({"loss": {"gamma": 20, "epsilon": 0.123456}}, {"ε 0.1235, γ 20": 320.0, "ε 0.3, γ 10": 310.0}),
        ({"study": "first"}, {"": 315.0}),
    ],
)
def test_different_recipes_are_never_averaged(report, write_run, changes, rsums):
    write_run("hal", 0, rsums=(310.0,), config={"loss": {"gamma": 10, "epsilon": 0.3}})
    write_run("hal", 1, rsums=(320.0,), config={"loss": {"gamma": 10, "epsilon": 0.3}} | changes)
    text, tables, page = report()
    rows = zip(tables["table"]["variant"].fillna(""), tables["table"]["rsum"], strict=True)
    assert dict(rows) == rsums
    assert all(name in shown for name in rsums for shown in (text, page))
    for key in ("loss.gamma", "loss.epsilon", "optimizer.lr"):
        assert (key in tables["results"]) == (key.partition(".")[0] in changes)


def test_several_parameters_divide_rows(report, write_run, make_evaluation):
    """Of one run or of several; tuned ones, which each run has of its own, are one row."""
    settings = dict(reference="transductive", reference_set="the test queries")
    for seed in (0, 1):
        betas = [make_evaluation(300.0 + beta, seed, "is", parameters={"beta": beta}, **settings) for beta in (10, 30)]
        others = [make_evaluation(300.0, seed, "csls", parameters={"k": 5 + 5 * seed}, **settings)]
        tuned = dict(parameters={"lam": 1.0 + seed}, tuned={"split": "val", "rsum": 300.0})
        others += [make_evaluation(300.0 + seed, seed, name, **tuned, **settings) for name in ("rgm", "auto")]
        others += [make_evaluation(300.0, seed, "nnn", parameters={"alpha": 0.5}, **settings)]
        write_run("hal", seed, evaluations=[*betas, *others, make_evaluation(300.0, seed)])
    text, tables, _ = report()
    rows = tables["table"][["criterion", "parameters", "n"]].fillna("").values.tolist()
    several = [["csls", "k 10", 1], ["csls", "k 5", 1], ["is", "beta 10", 2], ["is", "beta 30", 2], ["nnn", "", 2]]
    assert rows == [["nns", "", 2], ["auto", "tuned", 2], *several, ["rgm", "tuned", 2]]
    assert "| is (beta 10), transductive |" in text
    assert "counted more than once" not in text
    assert "| rgm (tuned), transductive |" in text


@pytest.mark.filterwarnings("error::pandas.errors.PerformanceWarning")
def test_each_test_set_has_a_section_of_its_own(report, write_tested):
    """A run without a fingerprint of its test set stands apart where others have one."""
    for test in ("one", "two", None):
        data = {"train": {"fingerprint": "train"}} | ({"test": {"fingerprint": test}} if test else {})
        write_tested("hal", 0, data=data, folder=str(test))
    for val in ("three", "four"):  # unfinished, on the first test set
        data = {split: {"fingerprint": name} for split, name in (("train", "train"), ("test", "one"), ("val", val))}
        many = {"data": dict.fromkeys(map(str, range(120)), val)}
        write_tested("hal", 1, data=data, folder=val, criteria=(), status="running", config=many)
    names = [f"scenes (test {name})" for name in ("one", "two", "unknown")]
    text, tables, page = report()
    assert tables["table"][["dataset", "n"]].values.tolist() == [[name, 1] for name in names]
    assert re.findall(r"<h2>(scenes.*?) ·", page) == names
    assert f"report: {'; '.join(names)}<" in page
    for section, name in zip(text.split("\n## ")[1:], names, strict=False):
        assert section.startswith(name)
        assert not any(other in section for other in names if other != name)


def test_fingerprints_name_test_sets(report, write_run, make_evaluation):
    """One test set has one name, also where only some of its runs measure validation too."""
    for number, (size, splits) in enumerate((("tiny", ["test"]), ("tiny", ["test", "val"]), ("default", ["test"]))):
        data = {split: {"fingerprint": f"{split} {size}"} for split in ("train", "val", "test")}
        made = [make_evaluation(300.0, number, split=split) for split in splits]
        write_run("hal", number, data=data, config={"data": {"size": size}}, evaluations=made)
    _, tables, _ = report()
    rows = tables["table"][["dataset", "split", "n"]].values.tolist()
    tiny, other = (f"scenes (test test {size}, val val {size})" for size in ("tiny", "default"))
    assert rows == [[other, "test", 1], [tiny, "test", 2], [tiny, "val", 1]]


def test_collapsed_runs_last_epochs_and_budgets_are_told(report, write_run):
    fallen = {"collapsed": {"epoch": 0, "step": 75, "seen": ["no pair scores above 0"]}}
    low = {"best": {"epoch": 1, "val/rsum": 140.0}, "chance_rsum": 120.0}
    for gamma, changes in ((20, fallen | low), (60, {})):
        write_run("hal", 0, (7.0 * gamma,), config={"loss": {"gamma": gamma}}, folder=f"hal{gamma}", **changes)
    write_run("sum", 0, (300.0,), config={"optimizer": {"lr": 0.01}}, epochs=2)
    write_run("max", 0, (200.0,), **fallen)
    write_run("max", 1, (200.0,))
    text, tables, page = report()
    assert tables["table"]["collapsed"].tolist() == [0, 1, 1, 0]
    assert "140.0 collapsed |" in text.partition("## scenes")[0]  # the sweep's table
    assert "| hal (γ 20) | nns | 140.0 collapsed |" in text
    assert "| max | nns | 200.0 ± 0.0 (1 of 2 collapsed) |" in text
    for shown in (text, page):
        assert "hal (γ 20), seed 0 (hal20, status finished): since step 75 no pair scores above 0" in shown
        assert "(hal20, status finished): val rsum 140.0, 120.0 by chance" in shown
        assert "4 of 5 runs" in shown
        assert "more than the loss (scenes · gru+image_cnn): optimizer.lr, trainer.max_epochs" in shown
    assert [text in page for text in ("<td>2</td>", "<td>4, the last</td>")] == [True, True]


def test_seeds_go_together_and_noise_apart(tmp_path, write_run):
    clean = {"train": {"fingerprint": "ab12cd34ef56"}, "val": {"fingerprint": "val"}}
    write_run("hal", 0, data=clean)  # from before there was noise
    cases = [(1, None), (0, ("captions", 0.2)), (1, ("captions", 0.2)), (0, ("captions", 0.4)), (0, ("images", 0.2))]
    for number, (seed, noise) in enumerate([*cases, (2, ("captions", 0.2, "some/where.npz"))]):
        protocol, rate, index = (*(noise or ("images", 0.0)), None)[:3]
        noise_settings = {"protocol": protocol, "rate": rate, "index": index, "seed": seed}
        facts = {"clean_fingerprint": "ab12cd34ef56", "fingerprint": "feedfacecafe", "changed": rate, **noise_settings}
        fields = (
            {"data": clean | {"train": {"fingerprint": f"noisy{seed}"}}, "noise": facts} if noise else {"data": clean}
        )
        write_run(
            "hal", seed, config={"data": {"batch_size": 128, "noise": noise_settings}}, folder=f"run{number}", **fields
        )
    runs = read_runs([tmp_path / "runs"])
    series = series_of(runs)
    assert sorted((series[run.path].variant, run.record["seed"]) for run in runs) == [
        ("noise captions 0.2", 0),
        ("noise captions 0.2", 1),
        ("noise captions 0.2 of index feedfacecafe", 2),
        ("noise captions 0.4", 0),
        ("noise images 0.2", 0),
        ("noise none", 0),
        ("noise none", 1),
    ]


def test_a_run_killed_at_once_is_noted_not_dropped(report, write_run):
    killed = write_run("hal", 1, rsums=(), status="running", name="killed", data={}, config={}, best=None)
    (killed / "metrics.csv").unlink()
    write_run("hal", 2, rsums=(), name="unevaluated")
    text, tables, page = report()
    assert tables["table"].empty
    for shown in (text, page):
        assert "unfinished, in no table: hal, seed 1 (killed, status running)" in shown
        assert "not evaluated, in no table: hal, seed 2 (unevaluated, status finished)" in shown
