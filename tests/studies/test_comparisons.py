"""The scripts that train and compare: what they would run, and what they say where data is missing."""

import json
import shlex
from pathlib import Path

import pandas as pd
import pytest
from hydra import compose, initialize_config_dir

ROOT = Path(__file__).parents[2]


def commands(printed):
    return [shlex.split(line.partition("] ")[2])[1:] for line in printed.splitlines() if line.startswith("[")]


@pytest.mark.parametrize(("status", "first"), [("finished", "report"), ("running", "train"), (None, "train")])
def test_what_is_done_is_not_done_again(study, tmp_path, status, first):
    folder = tmp_path / "runs" / "hal+mb-0"
    if status is not None:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps({"status": status}))
    found = commands(study("compare", "--out", tmp_path, "--losses", "hal+mb", "--dry-run").out)
    assert found[0][0] == first
    assert (f"resume={folder}" in found[0]) == (status == "running")


def test_the_title_is_one_setting_whatever_its_commas(study, tmp_path):
    (*_, report) = commands(study("compare", "--out", tmp_path, "--title", "Four losses, tuned", "--dry-run").out)
    assert report[-1] == 'title="Four losses, tuned"'


def test_each_run_of_the_losses_names_one_loss_that_there_is(study):
    found = commands(study("losses", "train", ROOT, "--seeds", "0", "--dry-run").out)
    known = {path.stem for path in (ROOT / "conf" / "loss").glob("*.yaml")}
    chosen = [[one.partition("=")[2] for one in command if one.startswith("loss=")] for command in found]
    assert len(found) == 10
    assert all(len(losses) == 1 and losses[0] in known for losses in chosen)
    assert sum("bank=memory" in command for command in found) == 1


def test_the_demo_has_the_rates_that_validation_chose_with_the_same_budget():
    tried = pd.read_csv(ROOT / "experiments" / "demo" / "rates.csv")
    losses = dict(list(tried.groupby("loss")))
    assert set(losses) == {"sum", "max", "sum_to_max", "hal", "hal+mb"}
    assert len({tuple(map(tuple, runs[["seed", "rate", "epochs"]].values)) for runs in losses.values()}) == 1
    for label, runs in losses.items():
        loss, _, bank = label.partition("+")
        with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
            cfg = compose("train", ["experiment=demo", f"loss={loss}", f"bank={'memory' if bank else 'none'}"])
        assert cfg.optimizer.lr == runs.loc[runs["val_rsum"].idxmax(), "rate"], label
        assert set(runs["epochs"]) == {cfg.trainer.max_epochs}
