"""Published tables as commands: what each would run, a real one on tiny scenes, and what a failure leaves."""

import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from hydra import compose, initialize_config_dir

from experiments import reproduce
from experiments.row_files import rows
from experiments.row_jobs import Job

ROOT = Path(__file__).parents[2]
EXPERIMENTS = ROOT / "conf" / "experiment"

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
    settings = yaml.safe_load((EXPERIMENTS / f"{name}.yaml").read_text())
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
        if (EXPERIMENTS / f"{name}.yaml").is_file():
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


def test_occurrences_are_of_one_ranking_of_all_of_cocos_images(papers_data, dry):
    found = commands(dry("acl-srw2019/5", "--coco", papers_data / "coco"))
    assert [row for row, _, command, *_ in found if command == "train"] == [f"acl-srw2019/2.{row}" for row in (4, 5, 6)]
    asked = [choices(overrides) for _, _, command, *overrides in found if command == "evaluate"]
    assert [one["criterion"] for one in asked] == ["nns", "nns", "nns", "is", "csls"]
    assert {one["protocol"] for one in asked} == {"full5k"}


def test_rows_on_other_data_keep_what_is_theirs(dry):
    printed = dry("aaai2020/2")
    configs = {}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        for row, _, command, *overrides in commands(printed):
            assert command == "train"
            configs[row] = compose("train", [one for one in overrides if not one.startswith("hydra.")])
    lines = ("2.1", "2.2", "2.3", "2.4", "2.14", "2.21", "2.25", "2.26")
    assert list(configs) == [f"aaai2020/{line}" for line in lines]
    losses = [config.loss._target_.rpartition(".")[2] for config in configs.values()]
    assert losses == ["SumMargin", "MaxMargin", "HAL", "HAL", "SumMargin", "KNNMargin", "MaxMargin", "HAL"]
    tuned = {"SumMargin": "sum", "MaxMargin": "max", "HAL": "hal", "KNNMargin": "knn_margin"}
    for loss, config in zip(losses, configs.values(), strict=True):
        recipe = yaml.safe_load((ROOT / "conf" / "recipe" / "demo" / f"{tuned[loss]}.yaml").read_text())
        assert config.optimizer.lr == recipe["optimizer"]["lr"], loss
    assert [bool(config.bank) for config in configs.values()] == [False, False, False, True] + [False] * 4
    assert configs["aaai2020/2.4"].bank.k is None  # 250 is the bank's of COCO
    assert configs["aaai2020/2.14"].similarity._target_.endswith("Order")
    assert {(config.trainer.max_epochs, config.positives) for config in configs.values()} == {(6, "pair")}
    for line in ("2.25", "2.26"):  # SCAN, on the places of the network's last map
        config = configs[f"aaai2020/{line}"]
        assert (config.image_encoder._target_.rpartition(".")[2], config.image_encoder.pooling) == ("ImageCNN", "none")
        assert config.similarity._target_.endswith("CrossAttention")
    assert "of which scenes have none" not in printed


def test_attention_over_regions_runs_where_there_are_regions(dry, tmp_path):
    for folder, shape in (("global", (4, 8)), ("grid", (4, 3, 8))):
        (tmp_path / folder).mkdir()
        np.save(tmp_path / folder / "train_ims.npy", np.zeros(shape, np.float16))
    asked = ("aaai2020/1", "--data", "small", "--root", tmp_path, "--lines", "1.6,1.8")
    trainings = {row: overrides for row, _, command, *overrides in commands(dry(*asked)) if command == "train"}
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        vectors, regions = (
            compose("train", [one for one in trainings[f"aaai2020/{line}"] if not one.startswith("hydra.")])
            for line in ("1.6", "1.8")
        )
    assert (vectors.data.root, regions.data.root) == (f"{tmp_path}/global", f"{tmp_path}/grid")
    assert regions.image_encoder._target_.endswith("ImageRegions")
    assert regions.text_encoder.bidirectional
    assert (regions.loss.gamma, regions.loss.epsilon, regions.optimizer.lr) == (70, 0.6, 0.0005)


@pytest.mark.long
def test_rows_are_measured_once_written_the_same_again_and_a_failure_leaves_the_others(script, tmp_path):
    asked = ["emnlp2019-submission/4", "--lines", "4.1,4.5,4.8", "--seeds", "0,1", "--out", tmp_path, *TINY, "loss.k=2"]

    def run():
        done = script("experiments.reproduce", *asked, status=1)
        return done.out, done.err.rstrip().splitlines()

    printed, said = run()
    order = [(row.rpartition("/")[2], seed, command) for row, seed, command, *_ in commands(printed)]
    assert order == [
        (line, seed, command)
        for seed in (0, 1)
        for line, command in (("4.1", "train"), ("4.5", "evaluate"), ("4.8", "train"))
    ]
    assert said[-3] == "2 commands failed:"
    assert all("loss=sum" in line for line in said[-2:])  # SUM has no k, the rescaled loss has

    folder = tmp_path / "emnlp2019-submission-table4"
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(files) == {"table.md", "table.csv", "table.tex"}
    frame = pd.read_csv(folder / "table.csv", dtype={"line": str}).set_index(["value", "line"])
    source = PUBLISHED[PUBLISHED["paper"] == "emnlp2019-submission"].set_index("line")
    assert list(frame.loc["published"].index) == ["4.1", "4.5", "4.8"]
    for line, stem in (("4.1", "test-single-nns"), ("4.5", "test-single-csls-transductive")):
        rsums = [
            json.loads(path.read_text())["metrics"]["rsum"]
            for path in tmp_path.glob(f"runs/*/evaluations/{stem}-*.json")
        ]
        assert frame.loc[("published", line), "rsum"] == source.loc[line, "rsum"]
        assert frame.loc[("measured", line), "rsum"] == pytest.approx(np.mean(rsums))
        assert frame.loc[("std", line), "rsum"] == pytest.approx(np.std(rsums, ddof=1))
        assert frame.loc[("measured", line), "seeds"] == "2 (0, 1)"
    assert "difference" not in set(frame.index.get_level_values("value"))  # other data
    text = files["table.md"].decode()
    assert re.search(r"^ *4\.5 .* csls .* ± ", printed, re.M)
    for note in (
        "points are of different data and cannot be compared",
        "transductive, as in the papers, the test queries being the reference: csls",
        "not measured: 4.8",
        "every training was changed by data.size=tiny, embedding_dim=16,",
        "| csls (k 10) | 2 (0, 1) |",
    ):
        assert note in re.sub(" +", " ", text)

    printed, _ = run()
    assert {row.rpartition("/")[2] for row, *_ in commands(printed)} == {"4.8"}  # the rest is done
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == files


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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("aaai2020/2", "--coco", "nowhere"), "aaai2020/2.24: nowhere/resnet152 lacks train_ims.npy"),
        (("aaai2020/2", "--coco", "nowhere"), "36 x 2,048 numbers an image"),
        (("aaai2020/2", "--coco", "nowhere"), "equal rows, float16 or float32; 1.0 GB"),
        (("aaai2020/2", "--coco", "nowhere"), "fartashf/vsepp"),
        (("aaai2020/1", "--coco", "nowhere"), "give FLICKR30K=FOLDER"),
        (("aaai2020/1", "--data", "flickr8k", "--root", "nowhere"), "nowhere is no folder"),
        (("aaai2020/1", "--data", "scenes", "--coco", "nowhere"), "does not go with --coco"),
        (("aaai2020/1", "--lines", "1.1,9.9"), "no row 9.9 in aaai2020/1"),
        (("aaai2020/3",), "no table aaai2020/3; choose among aaai2020/1"),
    ],
)
def test_what_cannot_be_run_is_said(arguments, said, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["reproduce.py", *arguments])
    with pytest.raises(SystemExit) as caught:
        reproduce.main()
    printed = capsys.readouterr()
    assert caught.value.code != 0
    assert said in f"{printed.out}{printed.err}{caught.value.code}"
