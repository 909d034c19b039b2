"""Published tables as commands: what each would run, a real one on tiny scenes, and what a failure leaves."""

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

ROOT = Path(__file__).parents[2]

PUBLISHED = pd.read_csv(ROOT / "experiments/papers/paper_tables.csv", dtype={"table": str, "line": str})
TINY = (
    "data.size=tiny", "embedding_dim=16", "text_encoder.word_dim=8", "image_encoder.width=4", "trainer.max_epochs=1",
    "loader.batch_size=64",
)  # fmt: skip
FEATURES = {"coco": ("vgg19", "inception_resnet_v2", "resnet152", "regions"), "flickr30k": ("vgg19", "regions")}
TABLES = [f"{paper}/{table}" for paper, table in PUBLISHED.groupby(["paper", "table"]).groups]


@pytest.fixture
def dry(monkeypatch, capsys, tmp_path):
    """A function that runs the script, dry and in this process, and gives all it prints."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["reproduce.py", *map(str, arguments), "--dry-run", f"--out={tmp_path}"])
        reproduce.main()
        return capsys.readouterr().out

    return run


def commands(printed):
    found = re.findall(r"^(?:\[\d+/\d+\] )?(\S+/\S+), seed (\d+): vsehub (.*)$", printed, re.M)
    return [(row, int(seed), *shlex.split(line)) for row, seed, line in found]


def choices(overrides):
    return dict(override.split("=", 1) for override in overrides)


@pytest.fixture(scope="module")
def papers_data(tmp_path_factory):
    """Folders that look as if they held all features."""
    base = tmp_path_factory.mktemp("features")
    for dataset, kinds in FEATURES.items():
        for kind in kinds:
            (base / dataset / kind).mkdir(parents=True)
            for split in ("train", "dev", "test", "testall"):
                for file in ("ims.npy", "caps.txt"):
                    (base / dataset / kind / f"{split}_{file}").touch()
    return base


def written(name):
    """A row's file: its settings, and its choices by group."""
    settings = yaml.safe_load(file_of(name).read_text())
    return settings, {key[10:]: value for one in settings["defaults"] for key, value in one.items()}


@pytest.mark.parametrize("table", TABLES)
def test_a_tables_rows_are_each_trained_and_measured_once(table, papers_data, dry):
    data = ("--coco", papers_data / "coco", "--flickr30k", papers_data / "flickr30k")
    found = commands(dry(table, *data, "--seeds", "0,3"))
    paper, _, number = table.partition("/")
    frame = PUBLISHED[(PUBLISHED["paper"] == paper) & (PUBLISHED["table"] == number)]
    trained, measured = {}, set()
    for row in frame.itertuples():
        name = f"{paper}/{row.line}"
        if file_of(name):
            settings, groups = written(name)
            training = settings.get("evaluates", name)
            trained[training] = row.dataset
            criterion = (groups.get("criterion", "nns"), groups["protocol"], settings.get("tune", False))
            if criterion != ("nns", written(training)[1]["protocol"], False):  # which training measures by as it ends
                measured.add((training, *criterion))

    folders, expected = {}, sorted((name, seed) for name in trained for seed in (0, 3))
    for _, seed, command, *overrides in found:
        if command == "train":
            chosen = choices(overrides)
            assert chosen["seed"] == str(seed)
            data_set, kind = Path(chosen["data.root"]).parts[-2:]
            assert data_set == trained[chosen["experiment"]]
            assert kind in FEATURES[data_set]
            folders[chosen["hydra.run.dir"]] = (chosen["experiment"], seed)
    assert sorted(folders.values()) == expected
    evaluations = [choices(overrides) for _, _, command, *overrides in found if command == "evaluate"]
    told = [
        (*folders[str(Path(one["checkpoint"]).parents[1])], one["criterion"], one["protocol"], "tune" in one)
        for one in evaluations
    ]
    assert sorted(told) == sorted((name, seed, *criterion) for name, *criterion in measured for seed in (0, 3))
    assert len(found) == len(expected) + len(told)


def test_a_started_run_goes_on_and_other_evaluations_are_not_the_rows(tmp_path):
    (row,) = [row for row in rows("acl-srw2019", "4")[0] if row.line == "3.2"]
    job = Job(row, 0, tmp_path, ["loss=knn_margin"], ("nns", "single"))
    assert job.training() == ["train", "loss=knn_margin", f"hydra.run.dir={tmp_path}"]
    run = {"status": "running", "dataset": "scenes", "architecture": "a", "label": "knn_margin", "seed": 0}
    (tmp_path / "run.json").write_text(json.dumps(run))
    assert job.training() == ["train", f"resume={tmp_path}"]
    (tmp_path / "run.json").write_text(json.dumps(run | {"status": "finished"}))
    assert job.training() is None

    own = {"criterion": "is", "protocol": "single", "parameters": {"beta": 30.0}, "tuned": None}
    own |= {"reference": "transductive", "metrics": {"rsum": 1.0}}
    (tmp_path / "evaluations").mkdir()
    others = (
        {"parameters": {"beta": 10.0}}, {"reference": "inductive"}, {"protocol": "c2"}, {"criterion": "is+rgm"},
        {"tuned": {"split": "val"}}, {"ensemble": [{}, {}]},
    )  # fmt: skip
    for number, other in enumerate(others):
        (tmp_path / "evaluations" / f"test-single-is-{number}.json").write_text(json.dumps(own | other))
    assert job.found() is None
    assert job.measuring() is not None
    (tmp_path / "evaluations" / "test-single-is-own.json").write_text(json.dumps(own))
    assert job.found() == own | {key: run[key] for key in ("dataset", "architecture", "label", "seed")}
    assert job.measuring() is None
