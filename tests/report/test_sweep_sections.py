"""Sweeps in the report: settings told apart, the best chosen on validation, gaps in the open."""

import numpy as np
import pytest

from vsehub.report.runs import read_runs
from vsehub.report.sweeps import sweep_sections


@pytest.fixture
def write_point(write_run):
    """A function that writes a run of settings with its best validation and its test rsum."""

    def write(val, test, seed=0, label="hal", status="finished", measured=None, **settings):
        name = "-".join([label, *map(str, settings.values()), str(seed), str(len(str(measured)))])
        more = {"best": {"epoch": 3, "val/rsum": val}, "metrics": {"test/rsum": test}, "status": status}
        config = {"loss": {"_target_": label, **settings}, **(measured or {})}
        return write_run(label, seed, (test,), config=config, folder=name, **more)

    return write


def report(tmp_path):
    """The settings of each section, the last word of its heading, and the rows of its table."""
    sections = sweep_sections(read_runs([tmp_path / "runs"]))
    parts = [section.heading.removeprefix("Sweep of ").partition(": ") for section in sections]
    return [
        (keys, rest.rpartition(" · ")[2], section.tables[0].rows)
        for (keys, _, rest), section in zip(parts, sections, strict=True)
    ]


def test_validation_chooses_even_where_test_says_otherwise(write_point, tmp_path):
    for gamma, epsilon, seed in ((g, e, s) for g in (10, 30.0, 60) for e in (0.1, 0.3) for s in (0, 1)):
        val, test = 300 + gamma / 10 + 10 * epsilon + seed, 290 - gamma / 10 - 10 * epsilon + 3 * seed
        status = "running" if (gamma, epsilon) == (60, 0.1) else "finished"
        write_point(val, test, seed, status=status, gamma=gamma, epsilon=epsilon)
    [(keys, loss, rows)] = report(tmp_path)
    assert (keys, loss, len(rows)) == ("loss.epsilon, loss.gamma", "hal", 5)
    assert rows[0] == ["0.3", "60", "309.5 ± 0.7", "282.5 ± 2.1", "2 (0, 1)", "chosen"]
    assert rows[-1][:5] == ["0.1", "10", "302.5 ± 0.7", "289.5 ± 2.1", "2 (0, 1)"]
    assert [bool(row[-1]) for row in rows] == [True, False, False, False, True]  # the last is best on test


@pytest.mark.usefixtures("undrawn")
def test_what_test_is_measured_by_divides_sweeps(write_point, tmp_path):
    csls = {"criterion": {"_target_": "CSLS", "k": 10}, "criterion_name": "csls"}
    folds = {"criterion_name": "nns", "protocol": {"name": "mine", "fold_images": 100, "folds": 5}}
    for measured, lead in (({"criterion_name": "nns"}, 0), (csls, 20), (folds, 150)):
        for gamma in (10, 30):
            write_point(300 + gamma, 200 + gamma + lead, measured=measured, gamma=gamma)
    sections = {word: [row[2] for row in rows] for _, word, rows in report(tmp_path)}
    assert sections == {
        "criterion name nns, protocol ": ["230.0", "210.0"],
        "criterion k 10, name csls, protocol ": ["250.0", "230.0"],
        "criterion name nns, protocol fold_images 100, folds 5, name mine": ["380.0", "360.0"],
    }


@pytest.mark.usefixtures("undrawn")
def test_words_divide_sweeps_and_many_numbers_of_few_runs_are_none(write_point, tmp_path):
    for variant, lead in (("paper", 0), ("release", 5)):
        for k in (1, 3, 10):
            write_point(200 + k + lead, 190, label="knn_margin", variant=variant, k=k)
    write_point(100, 90, label="sum", margin=0.2)
    for number in (1, 2):
        write_point(200, 190, label="max", a=number, b=2 * number, c=3 * number)
    for number, (gamma, epsilon) in enumerate(np.random.default_rng(0).random((5, 2))):
        write_point(200 + number, 190, gamma=gamma, epsilon=epsilon, epsilon_again=epsilon)
    sections = report(tmp_path)
    assert [(keys, word, len(rows)) for keys, word, rows in sections] == [
        ("loss.k", "loss.variant paper", 3),
        ("loss.k", "loss.variant release", 3),
        ("loss.epsilon, loss.gamma", "hal", 5),  # a setting that repeats another is not a second one
    ]
    assert sections[0][2][0][:4] == ["10", "210.0", "190.0", "1 (0)"]
