"""Published tables as commands: what each would run, and what of it is done."""

import json
import re
import shlex
import sys
from pathlib import Path

import pandas as pd
import pytest
import yaml

from experiments import reproduce
from experiments.row_files import file_of, rows
from experiments.row_jobs import Job

PUBLISHED = pd.read_csv(
    Path(__file__).parents[2] / "experiments/papers/paper_tables.csv", dtype={"table": str, "line": str}
)
FEATURES = {"coco": ("vgg19", "inception_resnet_v2", "resnet152", "regions"), "flickr30k": ("vgg19", "regions")}
TABLES = [f"{paper}/{table}" for paper, table in PUBLISHED.groupby(["paper", "table"]).groups]


@pytest.fixture(scope="module")
def papers_data(tmp_path_factory):
    """The options that name folders that look as if they held all features."""
    base = tmp_path_factory.mktemp("features")
    for folder in (base / dataset / kind for dataset, kinds in FEATURES.items() for kind in kinds):
        folder.mkdir(parents=True)
        for split in ("train", "dev", "test", "testall"):
            (folder / f"{split}_ims.npy").touch()
            (folder / f"{split}_caps.txt").touch()
    return [f"--{dataset}={base / dataset}" for dataset in FEATURES]


def written(name):
    """A row's file: its settings, and its choices by group."""
    settings = yaml.safe_load(file_of(name).read_text())
    return settings, {key[10:]: value for entry in settings["defaults"] for key, value in entry.items()}


@pytest.mark.parametrize("table", TABLES)
def test_a_tables_rows_are_each_trained_and_measured_once(table, papers_data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["", table, *papers_data, "--seeds=0,3", "--dry-run", f"--out={tmp_path}"])
    reproduce.main()
    commands = re.findall(r"^\S+ \S+/\S+, seed \d+: vsehub (\w+) (.*)$", capsys.readouterr().out, re.M)
    commands = [(command, dict(word.split("=", 1) for word in shlex.split(line))) for command, line in commands]
    paper, _, number = table.partition("/")
    trained, measured = set(), set()
    of_table = PUBLISHED[(PUBLISHED["paper"] == paper) & (PUBLISHED["table"] == number)]
    for row in of_table.dropna(subset="file").itertuples():
        settings, groups = written(row.file)
        training = settings.get("evaluates", row.file)
        trained.add((training, row.dataset))
        criterion = (groups.get("criterion", "nns"), groups["protocol"], str(settings.get("tune", False)))
        if criterion != ("nns", written(training)[1]["protocol"], "False"):  # which training measures by as it ends
            measured.add((training, *criterion))
    runs = {
        settings["hydra.run.dir"]: (settings["experiment"], Path(settings["data.root"]).parent.name, settings["seed"])
        for command, settings in commands
        if command == "train"
    }
    assert sorted(runs.values()) == sorted((*row, seed) for row in trained for seed in "03")
    evaluated = []
    for evaluation in (evaluation for command, evaluation in commands if command == "evaluate"):
        training, _, seed = runs[str(Path(evaluation["checkpoint"]).parents[1])]
        evaluated.append((training, evaluation["criterion"], evaluation["protocol"], evaluation["tune"], seed))
    assert sorted(evaluated) == sorted((*row, seed) for row in measured for seed in "03")
    assert len(commands) == len(runs) + len(evaluated)


def test_a_started_run_goes_on_and_other_evaluations_are_not_the_rows(tmp_path):
    (row,) = [row for row in rows("acl-srw2019", "4")[0] if row.line == "3.2"]
    job = Job(row, 0, tmp_path, ["loss=knn_margin"], ("nns", "single"))
    assert job.training() == ["train", "loss=knn_margin", f"hydra.run.dir={tmp_path}"]
    run = {"status": "running", "dataset": "scenes", "architecture": "a", "label": "knn_margin", "seed": 0}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert job.training() == ["train", f"resume={tmp_path}"]
    (tmp_path / "run.json").write_text(json.dumps(run | {"status": "finished"}))
    assert job.training() is None

    record = {"criterion": "is", "protocol": "single", "parameters": {"beta": 30.0, "weight": 1.0}, "tuned": None}
    record |= {"reference": "transductive", "metrics": {"rsum": 1.0}}
    (tmp_path / "evaluations").mkdir()
    others = (
        {"parameters": {"beta": 10.0, "weight": 1.0}}, {"reference": "inductive"}, {"protocol": "c2"},
        {"criterion": "is+rgm"}, {"tuned": {"split": "val"}}, {"ensemble": [{}, {}]},
    )  # fmt: skip
    for number, other in enumerate(others):
        (tmp_path / "evaluations" / f"test-single-is-{number}.json").write_text(json.dumps(record | other))
    assert job.evaluation() is None
    (tmp_path / "evaluations" / "test-single-is-own.json").write_text(json.dumps(record))
    assert job.evaluation() == record | {key: run[key] for key in ("dataset", "architecture", "label", "seed")}
    assert job.measuring() is None
