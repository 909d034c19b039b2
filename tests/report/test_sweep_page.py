"""Sweeps as the report tells them: settings told apart, the best chosen on validation, gaps in the open."""

import math

import numpy as np
import pytest

from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.results import results
from vsehub.report.runs import read_runs
from vsehub.report.sweeps import (
    choice_table,
    chosen_table,
    find_sweeps,
    find_tunings,
    matrix,
    settings_table,
    slices,
    sweep_notes,
    sweep_sections,
)

GAMMAS, EPSILONS = (10, 30.0, 60), (0.1, 0.3)
MISSING = (60, 0.1)


@pytest.fixture
def write_point(write_run):
    """A function that writes a finished run of settings with its best validation and its test rsum."""

    def write(val, test, seed=0, label="hal", status="finished", **settings):
        name = "-".join([label, *map(str, settings.values()), str(seed)])
        config = {"loss": {"_target_": f"vsehub.losses.{label}", **settings}}
        more = {"best": {"epoch": 3, "val/rsum": val}, "metrics": {"test/rsum": test}, "status": status}
        return write_run(label, seed, (test,), config=config, folder=name, **more)

    return write


@pytest.fixture
def runs_folder(write_point, tmp_path):
    """γ x ε with two seeds, one cell without a finished run. Validation and test disagree on which is best."""
    for gamma in GAMMAS:
        for epsilon in EPSILONS:
            for seed in (0, 1):
                val = 300 + gamma / 10 + 10 * epsilon + seed
                test = 290 - gamma / 10 - 10 * epsilon + 3 * seed
                status = "running" if (gamma, epsilon) == MISSING else "finished"
                write_point(val, test, seed, status=status, gamma=gamma, epsilon=epsilon)
    return tmp_path / "runs"


def only(found):
    assert len(found) == 1
    return found[0]


def test_a_grid_of_two_settings(runs_folder):
    sweep = only(find_sweeps(read_runs([runs_folder])))
    assert sweep.keys == ("loss.epsilon", "loss.gamma")
    assert (sweep.label, sweep.fixed, sweep.grid) == ("hal", "", True)
    assert len(sweep.table) == 5
    best = sweep.table.iloc[0]
    assert (best["loss.gamma"], best["loss.epsilon"], best["n"], best["seeds"]) == (60, 0.3, 2, "0, 1")
    assert best["val"] == pytest.approx(309.5)
    assert best["val std"] == pytest.approx(math.sqrt(0.5))
    assert sweep.table["val"].is_monotonic_decreasing
    cells = matrix(sweep)
    assert (list(cells.index), list(cells.columns)) == ([10, 30, 60], [0.1, 0.3])
    assert np.isnan(cells.loc[60, 0.1])
    assert cells.loc[30, 0.1] == pytest.approx(304.5)


def test_validation_chooses_even_where_test_says_otherwise(runs_folder):
    sweep = only(find_sweeps(read_runs([runs_folder])))
    assert sweep.table["test"].idxmax() != 0
    assert choice_table(sweep).rows == [
        ["chosen on validation", "0.3", "60", "309.5 ± 0.7", "282.5 ± 2.1", "2 (0, 1)"],
        ["best on test, not chosen", "0.1", "10", "302.5 ± 0.7", "289.5 ± 2.1", "2 (0, 1)"],
    ]
    assert sweep_notes(sweep) == ["1 of the grid's 6 settings have no finished run"]


def test_slices_hold_the_others_at_the_chosen_values(runs_folder):
    found = slices(only(find_sweeps(read_runs([runs_folder]))))
    assert list(found["loss.gamma"]["loss.gamma"]) == [10, 30, 60]
    assert set(found["loss.gamma"]["loss.epsilon"]) == {0.3}
    assert list(found["loss.epsilon"]["loss.epsilon"]) == [0.3], "ε = 0.1 has no run at γ = 60"


def test_one_setting_and_words_that_part_sweeps(write_point, tmp_path):
    """`variant` is no number: two sweeps of one setting each. A loss with one recipe is no sweep."""
    for variant, lead in (("paper", 0), ("release", 5)):
        for k in (1, 3, 10):
            write_point(200 + k + lead, 190, label="hal", variant=variant, k=k)
    write_point(100, 90, label="sum", margin=0.2)
    found = find_sweeps(read_runs([tmp_path / "runs"]))
    assert [(one.keys, one.fixed) for one in found] == [
        (("loss.k",), "loss.variant paper"),
        (("loss.k",), "loss.variant release"),
    ]
    table = settings_table(found[0])
    assert table.head == ["loss.k", "validation rsum", "test rsum", "seeds"]
    assert table.rows[0] == ["10", "210.0", "190.0", "1 (0)"]
    assert sweep_notes(found[0]) == ["one seed: these runs do not show how much of a lead is chance"]


def test_points_that_share_no_value_and_settings_that_move_together(write_point, tmp_path):
    """A search's points are a sweep without a grid; a setting that repeats another is no second one."""
    rng = np.random.default_rng(0)
    for number in range(5):
        gamma, epsilon = rng.random(2)
        write_point(200 + number, 190, gamma=gamma, epsilon=epsilon, epsilon_again=epsilon)
    sweep = only(find_sweeps(read_runs([tmp_path / "runs"])))
    assert (sweep.keys, sweep.grid, len(sweep.table)) == (("loss.epsilon", "loss.gamma"), False, 5)


def test_two_recipes_that_differ_in_many_numbers_are_no_sweep(write_point, tmp_path):
    for number in (1, 2):
        write_point(200, 190, a=number, b=2 * number, c=3 * number)
    assert find_sweeps(read_runs([tmp_path / "runs"])) == []


def evaluations(make_evaluation, seed, splits=("val", "test")):
    """rgm with several λ; on validation λ = 2 is best, on test λ = 4 is."""
    best = {"val": 2.0, "test": 4.0}
    return [
        make_evaluation(
            300 - 5 * abs(value - best[split]) + seed,
            seed,
            "rgm",
            split=split,
            parameters={"relaxation": value, "capacity": "proportional"},
            reference="transductive",
            reference_set=f"the {split} queries themselves, fold by fold",
        )
        for split in splits
        for value in (1.0, 2.0, 4.0)
        if (split, value) != ("test", 1.0)
    ]


def test_a_parameter_is_chosen_on_validation(write_run, make_evaluation, tmp_path):
    for seed in (0, 1):
        write_run("hal", seed, evaluations=evaluations(make_evaluation, seed))
    write_run("sum", 0, evaluations=evaluations(make_evaluation, 0, ("val",)))
    runs = read_runs([tmp_path / "runs"])
    frame = results(runs, series_of(runs))
    tuning = only(find_tunings(frame))
    assert (tuning.criterion, tuning.parameter, tuning.reference) == ("rgm", "relaxation", "transductive")
    assert list(tuning.table["label"].unique()) == ["sum", "hal"]
    hal = tuning.table[tuning.table["label"] == "hal"].set_index("value")
    assert hal.loc[2.0, "rsum"] == pytest.approx(300.5)
    assert hal.loc[2.0, "test"] == pytest.approx(290.5)
    assert np.isnan(hal.loc[1.0, "test"])
    assert hal.loc[2.0, "t2i/r10"] == pytest.approx(300.5 / 6 * 0.9 * 1.4)
    summed, chosen = ([row[0], row[1], *row[4:]] for row in chosen_table(tuning).rows)
    assert chosen == ["hal", "2", "300.5 ± 0.7", "290.5 ± 0.7", "2"]
    assert summed == ["sum", "2", "300.0", "–", "1"]
    part = only(sweep_sections(runs, frame))
    assert part.heading.startswith("relaxation chosen on validation: scenes")
    assert [len(table.rows) for table in part.tables] == [2, 6]
    assert b"relaxation" in only(part.pictures).svg


@pytest.mark.long
def test_the_page_of_a_sweep(runs_folder, tmp_path):
    """Its figures and its table are there, and drawing them again gives the same bytes."""
    files = build_report([runs_folder], tmp_path / "report")
    runs = read_runs([runs_folder])
    part = only(sweep_sections(runs, results(runs, series_of(runs))))
    assert [picture.name for picture in part.pictures] == ["sweep-1-heat", "sweep-1-slices"]
    for picture in part.pictures:
        assert files[f"figures/{picture.name}.png"].read_bytes() == picture.png
        assert files[f"figures/{picture.name}.svg"].read_bytes() == picture.svg
        assert len(picture.narrow) > 5_000
    assert b"<pattern" in part.pictures[0].svg, "the cell without a run is not hatched"
    for name, value in (("index.html", "309.5 <small>± 0.7</small>"), ("table.md", "309.5 ± 0.7")):
        text = files[name].read_text()
        assert "chosen on validation" in text
        assert value in text
