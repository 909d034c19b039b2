"""The scripts that train and compare: what they would run, and what they say where data is missing."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

ROOT = Path(__file__).parents[1]


def script(name, *arguments, status=0):
    command = [sys.executable, ROOT / "experiments" / name, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == status, done.stderr
    return done.stdout + done.stderr


def commands(printed):
    return [shlex.split(line.partition("] ")[2])[1:] for line in printed.splitlines() if line.startswith("[")]


def composed(overrides):
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return compose("train", overrides=overrides)


def test_table2_on_scenes_composes(tmp_path):
    found = commands(script("reproduce_table2.py", "--dry-run", "--out", tmp_path, "--seeds", "0,1"))
    trainings = [overrides for command, *overrides in found if command == "train"]
    assert len(trainings) == 8
    configs = [composed(overrides) for overrides in trainings]
    assert [config.loss._target_.rpartition(".")[2] for config in configs[:4]] == [
        "SumMargin",
        "MaxMargin",
        "HAL",
        "HAL",
    ]
    assert [bool(config.bank) for config in configs[:4]] == [False, False, False, True]
    assert found[-1] == ["report", f"{tmp_path}/runs", f"out={tmp_path}/report", "paper=aaai2020", "table=2"]


def test_table2_on_coco_has_the_papers_settings(tmp_path):
    (tmp_path / "resnet152").mkdir()
    for split in ("train", "dev", "testall"):
        (tmp_path / "resnet152" / f"{split}_ims.npy").touch()
    printed = script("reproduce_table2.py", "--coco", tmp_path, "--dry-run")
    assert "no features of vgg19" in printed
    configs = [composed(overrides) for command, *overrides in commands(printed) if command == "train"]
    assert [config.loader.batch_size for config in configs] == [128, 128, 512, 512]
    assert [config.optimizer.lr for config in configs] == [0.001, 0.0002, 0.001, 0.001]
    assert [config.trainer.max_epochs for config in configs] == [30, 30, 15, 15]
    assert configs[-1].bank.k == 250
    assert {(config.data.test, config.protocol.name) for config in configs} == {("testall", "c2")}


def test_absent_coco_says_what_to_get(tmp_path):
    said = script("reproduce_table2.py", "--coco", tmp_path / "coco", status=1)
    assert f"{tmp_path}/coco/resnet152   2048 features, 1.0 GB" in said
    assert "train_ims.npy" in said
    assert "fartashf/vsepp" in said


def test_flickr8k_needs_its_folder(tmp_path):
    said = script("reproduce_table2.py", "--data", "flickr8k", "--root", tmp_path / "none", status=2)
    assert f"{tmp_path}/none is no folder" in said


@pytest.mark.parametrize(("status", "first"), [("finished", "report"), ("running", "train"), (None, "train")])
def test_what_is_done_is_not_done_again(tmp_path, status, first):
    folder = tmp_path / "runs" / "hal+mb-0"
    if status is not None:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"status": status}))
    found = commands(script("compare.py", "--out", tmp_path, "--losses", "hal+mb", "--dry-run"))
    assert found[0][0] == first
    assert (f"resume={folder}" in found[0]) == (status == "running")
