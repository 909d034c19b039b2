"""The grid of losses and criteria: its trainings compose, its measuring survives a kill, its page says what lacks."""

import itertools
import json
import shlex
import shutil
import time
from importlib import import_module
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

from experiments.grid.tables import letters

ROOT = Path(__file__).parents[2]
GRID = ROOT / "experiments" / "grid"
CELLS = 26  # nns; five with two references, default and tuned; gm; rgm and csls+rgm, default and tuned


@pytest.fixture
def grid(study, tmp_path):
    """A function that runs the script and returns what it says, or with start=True the running process."""

    def run(*arguments, start=False):
        done = study("grid", "run", *arguments, cwd=tmp_path, start=start, UNDRAWN="1")
        return done if start else done.out + done.err

    return run


@pytest.fixture(scope="module")
def pilot():
    return import_module("experiments.grid.pilot")


def trainings(grid, *arguments):
    """Folder's name -> the configuration that it would be trained with."""
    found = {}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for line in grid(*arguments, "--dry-run").splitlines():
            _, command, *overrides = shlex.split(line.partition("] ")[2]) or ["", ""]
            if command == "train":
                *overrides, folder = overrides
                found[Path(folder).name] = compose("train", overrides=overrides)
    return found


@pytest.mark.parametrize("data", ["scenes", ROOT], ids=["scenes", "features"])
@pytest.mark.long
def test_trainings_compose(tmp_path, data, pilot, grid):
    found = trainings(grid, data, "--out", tmp_path, "--seeds", "0,7")
    assert list(found) == [f"{label}-{seed}" for seed in (0, 7) for label in pilot.OWN]
    assert {name: config.seed for name, config in found.items()} == {name: int(name[-1]) for name in found}
    assert [name for name, config in found.items() if config.bank] == ["hal+mb-0", "hal+mb-7"]
    assert len({config.loss._target_ for config in found.values()}) == 7
    if data != "scenes":
        assert {config.trainer.max_epochs for config in found.values()} == {13}
        chosen = pd.read_csv(GRID / "settings.csv").set_index("loss")["rate"]
        assert {name: config.optimizer.lr for name, config in found.items()} == {
            name: chosen[name[:-2]] for name in found
        }


def test_pilot_takes_the_best_on_val_and_of_equal_ones_the_first(pilot):
    frame = pd.DataFrame(
        [("sum", "a", 1.0), ("sum", "b", 3.0), ("max", "c", 2.0), ("max", "d", 2.0), ("sum", "e", 2.9)],
        columns=["loss", "overrides", "val_rsum"],
    )
    assert pilot.best_of(frame)["overrides"].tolist() == ["b", "c"]
    assert pilot.overrides("rescaled", "0.1", ["loss=rescaled_max"]) == [
        "loss=rescaled_max",
        "bank=none",
        "optimizer.lr=0.1",
    ]
    assert pilot.overrides("hal+mb", "0.1", ["loss.gamma=3"]) == [
        "loss=hal",
        "bank=memory",
        "optimizer.lr=0.1",
        "loss.gamma=3",
    ]


def test_committed_settings_are_the_pilots_choice(pilot):
    tried, chosen = (pd.read_csv(GRID / name) for name in ("pilot.csv", "settings.csv"))
    assert pilot.best_of(tried).reset_index(drop=True).equals(chosen)
    assert (tried.groupby("loss").size() == 4).all()  # the same budget for all
    assert list(pilot.chosen()) == list(pilot.OWN)


@pytest.mark.long
def test_measures_after_a_kill_and_again_after_another_training(tmp_path, trained, grid):
    """One checkpoint under two names, since training is not what is tested."""
    for label in ("hal+mb", "sum", "max"):
        shutil.copytree(trained, tmp_path / "runs" / f"{label}-3")
        change(tmp_path / "runs" / f"{label}-3" / "run.json", label=label)
    change(tmp_path / "runs" / "max-3" / "run.json", status="running")
    arguments = [
        "scenes",
        "--no-training",
        "--out",
        tmp_path,
        "--seeds",
        3,
        "--cases",
        "sum",
        "max",
        "hal+mb",
        "infonce",
    ]

    process = grid(*arguments, start=True)
    while not (early := list((tmp_path / "measured").rglob("*.json"))) and process.poll() is None:
        time.sleep(0.02)
    process.kill()
    process.wait()
    assert 0 < len(early) < 2 * CELLS
    whole = {path: path.stat().st_mtime_ns for path in (tmp_path / "measured").rglob("*.json")}
    assert all(json.loads(path.read_text())["contributions"] for path in whole)

    said = grid(*arguments)
    assert "max-3 is running, not finished: left out" in said
    assert "infonce-3 is not trained: left out" in said
    found = {path: path.stat().st_mtime_ns for path in (tmp_path / "measured").rglob("*.json")}
    assert {path: found[path] for path in whole} == whole
    names = sorted(path.name for path in found if path.parent.name == "sum-3")
    assert len(names) == CELLS
    assert len(found) == 2 * CELLS
    assert {"csls+rgm-queries-tuned.json", "sinkhorn-train-tuned.json"} <= set(names)
    assert not [name for name in names if "gm-train" in name]
    check_tables(tmp_path, trained)

    change(tmp_path / "runs" / "sum-3" / "run.json", started="later")
    grid(*arguments)
    again = {path: path.stat().st_mtime_ns for path in found}
    assert {path.parent.name for path in found if again[path] != found[path]} == {"sum-3"}
    assert sum(again[path] != found[path] for path in found) == CELLS


def change(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def check_tables(folder, trained):
    frame = pd.read_csv(folder / "grid" / "results.csv")
    assert frame.groupby("loss").size().to_dict() == {"hal+mb": CELLS, "sum": CELLS}
    own = frame[(frame["loss"] == "sum") & (frame["criterion"] == "nns")].iloc[0]
    record = json.loads((trained / "run.json").read_text())
    assert own["rsum"] == pytest.approx(record["metrics"]["test/rsum"], rel=1e-5)
    assert (own["epochs"], own["best_epoch"]) == (record["epochs"], record["best"]["epoch"])

    tests = pd.read_csv(folder / "grid" / "comparisons.csv")
    assert tests.groupby("family", sort=False).size().to_dict() == {
        "losses under nns": 1,
        "criteria after sum": CELLS - 3,  # nns, and transductive QB-Norm, which is the inverted softmax
        "criteria after hal+mb": CELLS - 3,
    }
    assert set(tests["outcome"]) == {"too few seeds"}
    same = tests[tests["family"] == "losses under nns"].iloc[0]
    assert (same["difference"], same["p_images"]) == (0, 1)
    assert pd.isna(same["p_seeds"])

    page = (folder / "grid" / "index.html").read_text()
    for text in ("∅", "no inductive form", "With fewer than three seeds the test over trainings cannot be made"):
        assert text in page
    measured = page.partition("<section>")[2].partition("What the papers claim</h2>")[0]
    assert measured
    assert "not measured" not in measured
    assert page.count("data:image/svg+xml") == 3
    assert "<script" not in page
    assert not [line for line in page.splitlines() if "src=" in line and 'src="data:' not in line]


def test_letters():
    assert letters(["hal", "max", "sum"], []) == {"hal": "a", "max": "a", "sum": "a"}
    assert letters(["hal", "max", "sum"], [("hal", "sum")]) == {"hal": "a", "max": "ab", "sum": "b"}
    assert letters(["x", "y"], [("y", "x")]) == {"x": "a", "y": "b"}
    apart = [("a", "c"), ("a", "d"), ("b", "d"), ("d", "e")]
    found = letters(list("abcde"), apart)
    for one, other in itertools.combinations("abcde", 2):
        told = (one, other) in apart
        assert told != bool(set(found[one]) & set(found[other])), (one, other)
