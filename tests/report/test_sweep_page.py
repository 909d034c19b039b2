"""Sweeps as the report tells them: settings told apart, the best chosen on validation, gaps in the open."""

import math

import numpy as np
import pytest

from vsehub.report.build import build_report
from vsehub.report.recipes import series_of
from vsehub.report.runs import read_runs
from vsehub.report.sweep_plots import sweep_parts
from vsehub.report.sweeps import (
    choice_sentences,
    find_sweeps,
    find_tunings,
    matrix,
    setting_rows,
    slices,
    tuning_sentences,
)
from vsehub.report.tables import results

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
    chosen, spread, top, gap = choice_sentences(sweep)
    assert chosen == (
        "Chosen on validation alone: loss.epsilon 0.3, loss.gamma 60, with a validation rsum of 309.5 ± 0.7 over 2 "
        "seeds; test rsum 282.5 ± 2.1."
    )
    assert "0 of the 4 other settings" in spread
    assert "On test loss.epsilon 0.1, loss.gamma 10 is best (289.5 ± 2.1); it was not chosen" in top
    assert gap == "1 of the grid's 6 settings have no finished run."


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
    head, rows = setting_rows(found[0])
    assert head == ["loss.k", "validation rsum", "test rsum", "seeds"]
    assert rows[0] == ["10", "210.0", "190.0", "1 (0)"]
    assert "how much of its lead is chance" in choice_sentences(found[0])[1]


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
    summed, chosen = tuning_sentences(tuning)
    assert "relaxation 2, with a validation rsum of 300.5 ± 0.7 over 2 runs; test rsum 290.5 ± 0.7." in chosen
    assert "relaxation 2, with a validation rsum of 300.0 over 1 run; on test it was not measured." in summed
    part = only(sweep_parts(runs, frame))
    assert part.heading.startswith("relaxation chosen on validation: scenes")
    assert len(part.grids[0].rows) == 6
    assert b"relaxation" in only(part.pictures).svg


def test_the_page_of_a_sweep(runs_folder, tmp_path):
    """Its figures and its table are there, and drawing them again gives the same bytes."""
    files = build_report([runs_folder], tmp_path / "report")
    runs = read_runs([runs_folder])
    part = only(sweep_parts(runs, results(runs, series_of(runs))))
    assert [picture.name for picture in part.pictures] == ["sweep-1-heat", "sweep-1-slices"]
    for picture in part.pictures:
        assert files[f"figures/{picture.name}.png"].read_bytes() == picture.png
        assert files[f"figures/{picture.name}.svg"].read_bytes() == picture.svg
        assert len(picture.narrow) > 5_000
    assert b"<pattern" in part.pictures[0].svg, "the cell without a run is not hatched"
    for name in ("index.html", "table.md"):
        text = files[name].read_text()
        assert "Chosen on validation alone: loss.epsilon 0.3, loss.gamma 60" in text
        assert "309.5 ± 0.7" in text
