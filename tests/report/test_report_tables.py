"""Aggregation, verdicts and the published table: the numbers and what is said about them."""

import statistics

import pandas as pd
import pytest

from vsehub.checks import InputError
from vsehub.report.build import build_report
from vsehub.report.published import is_own_setting, published_table


@pytest.fixture(autouse=True)
def no_figures(monkeypatch):
    """The figures have tests of their own; drawing them here would take most of the time."""
    monkeypatch.setattr("vsehub.report.build.draw", lambda *_: [])


def report(tmp_path, **options):
    files = build_report([tmp_path / "runs"], tmp_path / "out", **options)
    return files, pd.read_csv(files["table.csv"], keep_default_na=False, na_values=[""])


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
    row = next(line for line in files["table.md"].read_text().splitlines() if "| max |" in line)
    assert "| none | 1 (7) |" in row
    assert "| 280.0 |" in row
    results = pd.read_csv(files["results.csv"])
    assert results["rsum"].tolist() == [*values, 280.0]
    assert results["hubness/i2t/skew_1"].eq(2.5).all()


def test_the_sentence_below_names_protocol_seeds_data_and_hardware(tmp_path, write_run):
    write_run("hal", 3)
    text = report(tmp_path)[0]["table.md"].read_text()
    for told in (
        "Protocol single on the test split: 500 images and 2,500 texts, one ranking.",
        "Seeds: 3.",
        "train 2,000 images, 10,000 captions (ab12cd34ef56)",
        "Hardware: Some CPU, 2 cores, 23 GB memory, no GPU.",
    ):
        assert told in text


@pytest.mark.parametrize(
    ("hal", "maximum", "told"),
    [
        ((310.0, 312.0), (290.0, 292.0), "hal leads max by 20.0 rsum, more than the spread of the seeds (2.8)."),
        ((300.0, 310.0), (299.0, 305.0), "within the spread of the seeds (11.3): no winner."),
        ((310.0,), (290.0,), "hal leads max by 20.0 rsum; one seed: no claim."),
        ((310.0, 312.0), (290.0,), "one seed: no claim."),
    ],
)
def test_verdicts(tmp_path, write_run, hal, maximum, told):
    for label, values in (("hal", hal), ("max", maximum)):
        for seed, rsum in enumerate(values):
            write_run(label, seed, rsums=(rsum,))
    files, _ = report(tmp_path)
    assert told in files["table.md"].read_text()
    assert told in files["index.html"].read_text()


def test_losses_trained_on_different_data_get_no_winner(tmp_path, write_run):
    for seed in (0, 1):
        write_run("hal", seed, rsums=(310.0 + seed,))
        write_run(
            "max", seed, rsums=(290.0 + seed,), data={"train": {"images": 9, "captions": 45, "fingerprint": "ff"}}
        )
    assert "on different data (test, train): no claim." in report(tmp_path)[0]["table.md"].read_text()


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


def test_recipes_that_differ_between_losses_are_told_and_own_settings_recognised(tmp_path, write_run):
    write_run("hal", 0, config={"optimizer": {"lr": 0.001}})
    write_run("max", 0, config={"optimizer": {"lr": 2e-4}})
    text = report(tmp_path)[0]["table.md"].read_text()
    assert "optimizer.lr 0.0002 (max), 0.001 (hal), each loss's own published setting." in text
    assert is_own_setting("max", "optimizer.lr", "0.0002")
    assert not is_own_setting("max", "optimizer.lr", "0.01")
    assert not is_own_setting("infonce", "optimizer.lr", "0.001")


def test_repeated_seeds_and_code_versions_are_noted(tmp_path, write_run):
    write_run("hal", 0, folder="a")
    write_run("hal", 0, folder="b", git={"sha": "fedcba9876", "dirty": True})
    text = report(tmp_path)[0]["table.md"].read_text()
    assert "Seed 0 is counted more than once in hal, nns" in text
    assert "2 versions of the code: vsehub 0.1.0, git 01234567; vsehub 0.1.0, git fedcba98." in text
    assert "Uncommitted changes were in the code of 1 of 2 runs" in text


def test_criterion_parameters_part_rows_only_where_one_run_has_several(tmp_path, write_run, make_evaluation):
    kept = dict(reference="transductive", reference_set="the test queries")
    for seed in (0, 1):
        betas = [make_evaluation(300.0 + beta, seed, "is", parameters={"beta": beta}, **kept) for beta in (10, 30)]
        own = make_evaluation(300.0 + seed, seed, "rgm", parameters={"lam": 1.0 + seed}, **kept)
        write_run("hal", seed, evaluations=[*betas, own])
    files, table = report(tmp_path)
    assert table[["criterion", "n"]].values.tolist() == [["is", 2], ["is", 2], ["rgm", 2]]
    text = files["table.md"].read_text()
    assert "| is (beta 10) | transductive | 2 (0, 1) |" in text
    assert "The parameters of rgm differ between runs on scenes: lam 1.0; lam 2.0." in text
    assert "counted more than once" not in text


def test_published_rows_are_joined_by_loss_and_criterion(tmp_path, write_run):
    for seed in (0, 1):
        write_run("hal", seed, rsums=(300.0 + seed,))
        write_run("infonce", seed)
    files, _ = report(tmp_path, paper="aaai2020", table="2")
    joined = pd.read_csv(files["published.csv"], dtype={"line": str})
    assert joined.loc[joined["figure"] == "published", "line"].tolist() == ["2.3", "2.7", "2.11", "2.23", "2.26"]
    first = joined[joined["line"] == "2.3"].set_index("figure")["rsum"]
    assert first[["published", "measured", "difference"]].tolist() == pytest.approx([436.1, 300.5, -135.6])
    assert first["std"] == pytest.approx(statistics.stdev([300.0, 301.0]))
    text = files["published.md"].read_text()
    assert "published on coco" in text
    assert "not a reproduction error" in text
    assert "No row of this table has the measured architecture (gru+image_cnn)" in text
    assert "| 2.3 | difference |" in text
    for name, line in (("table.tex", r"scenes & gru+image\_cnn & hal &"), ("published.tex", "2.3 & difference &")):
        assert line in files[name].read_text()


def test_published_rows_keep_to_the_measured_architecture_and_protocol(tmp_path, write_run, make_evaluation):
    place = dict(dataset="coco", architecture="gru+resnet152")
    write_run("hal", 0, evaluations=[make_evaluation(460.0, protocol="c2")], **place)
    files, _ = report(tmp_path, paper="aaai2020", table="2")
    joined = pd.read_csv(files["published.csv"], dtype={"line": str})
    assert joined["line"].tolist() == ["2.11"] * 4 + ["2.23"]
    text = files["published.md"].read_text()
    assert "reproduction error" not in text
    assert "without a measured counterpart (same loss, criterion and protocol): 2.23." in text


def test_unknown_papers_and_tables_are_refused_with_the_choices(tmp_path, write_run):
    write_run()
    with pytest.raises(InputError, match="aaai2020"):
        published_table("aaai2021", "2")
    with pytest.raises(InputError, match="choose one of '1', '2'"):
        published_table("aaai2020", "9")
    with pytest.raises(InputError, match="both or neither"):
        report(tmp_path, paper="aaai2020")
