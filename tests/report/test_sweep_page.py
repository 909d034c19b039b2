"""Sweeps as the report tells them: settings told apart, the best chosen on validation, gaps in the open."""

import math

import numpy as np
import pytest

from vsehub.report.runs import read_runs
from vsehub.report.sweeps import find_sweeps, settings_table, slices, sweep_sections

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
def grid(write_point, tmp_path):
    """Runs of γ x ε with two seeds, one cell not finished. Validation and test disagree on the best setting."""
    for gamma in GAMMAS:
        for epsilon in EPSILONS:
            for seed in (0, 1):
                val = 300 + gamma / 10 + 10 * epsilon + seed
                test = 290 - gamma / 10 - 10 * epsilon + 3 * seed
                status = "running" if (gamma, epsilon) == MISSING else "finished"
                write_point(val, test, seed, status=status, gamma=gamma, epsilon=epsilon)
    return read_runs([tmp_path / "runs"])


def test_validation_chooses_even_where_test_says_otherwise(grid):
    (sweep,) = find_sweeps(grid)
    assert (sweep.keys, sweep.grid, sweep.title) == (
        ["loss.epsilon", "loss.gamma"],
        True,
        "scenes · gru+image_cnn · hal",
    )
    best = sweep.table.iloc[0]
    assert (best["loss.gamma"], best["loss.epsilon"], best["n"], best["seeds"]) == (60, 0.3, 2, "0, 1")
    assert best[["val", "val std"]].tolist() == pytest.approx([309.5, math.sqrt(0.5)])
    assert sweep.table["val"].is_monotonic_decreasing
    rows = settings_table(sweep).rows
    assert len(rows) == 5
    assert [row for row in rows if row[-1]] == [
        ["0.3", "60", "309.5 ± 0.7", "282.5 ± 2.1", "2 (0, 1)", "chosen"],
        ["0.1", "10", "302.5 ± 0.7", "289.5 ± 2.1", "2 (0, 1)", "best on test, not chosen"],
    ]
    found = slices(sweep)
    assert list(found["loss.gamma"]["loss.gamma"]) == [10, 30, 60]
    assert set(found["loss.gamma"]["loss.epsilon"]) == {0.3}
    assert list(found["loss.epsilon"]["loss.epsilon"]) == [0.3], "ε = 0.1 has no run at γ = 60"


def test_words_part_sweeps_and_many_numbers_are_none(write_point, tmp_path):
    """`variant` is no number: two sweeps of one setting each. A loss with one recipe is no sweep."""
    for variant, lead in (("paper", 0), ("release", 5)):
        for k in (1, 3, 10):
            write_point(200 + k + lead, 190, label="knn_margin", variant=variant, k=k)
    write_point(100, 90, label="sum", margin=0.2)
    for number in (1, 2):
        write_point(200, 190, a=number, b=2 * number, c=3 * number)
    found = find_sweeps(read_runs([tmp_path / "runs"]))
    assert [(one.keys, one.title.rpartition(" · ")[2]) for one in found] == [
        (["loss.k"], "loss.variant paper"),
        (["loss.k"], "loss.variant release"),
    ]
    assert settings_table(found[0]).rows[0] == ["10", "210.0", "190.0", "1 (0)", "chosen"]


def test_points_that_share_no_value_and_settings_that_move_together(write_point, tmp_path):
    """A search's points are a sweep without a grid; a setting that repeats another is no second one."""
    rng = np.random.default_rng(0)
    for number in range(5):
        gamma, epsilon = rng.random(2)
        write_point(200 + number, 190, gamma=gamma, epsilon=epsilon, epsilon_again=epsilon)
    (sweep,) = find_sweeps(read_runs([tmp_path / "runs"]))
    assert (sweep.keys, sweep.grid, len(sweep.table)) == (["loss.epsilon", "loss.gamma"], False, 5)


@pytest.mark.long
def test_the_figures_of_a_sweep(grid):
    (part,), (again,) = sweep_sections(grid), sweep_sections(grid)
    assert [picture.name for picture in part.pictures] == ["sweep-1-heat", "sweep-1-slices"]
    assert part.pictures == again.pictures, "drawn again they have the same bytes"
    assert b"<pattern" in part.pictures[0].svg, "the cell without a run is not hatched"
