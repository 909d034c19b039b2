"""Whole programs: training, evaluation and reports."""

import hashlib
import json
import shutil
import time

import pytest
import torch
from run_files import record, rows


def figures(run, name="test-single-nns"):
    """The record of the evaluation whose file's name begins so."""
    (path,) = (run / "evaluations").glob(f"{name}-*.json")
    return json.loads(path.read_text())


def test_a_run_leaves_its_record(trained):
    run = record(trained)
    assert [run[name] for name in ("status", "label", "seed", "epochs")] == ["finished", "hal+mb", 3, 4]
    assert (run["dataset"], run["config"]["embedding_dim"]) == ("scenes", 16)
    history = rows(trained)
    assert [float(row["lr"]) for row in history] == [1e-3, 5e-4, 2.5e-4, 1.25e-4]
    assert [row["bank/pairs"] for row in history] == ["", "240.0", "240.0", "240.0"]
    best = max(history, key=lambda row: float(row["val/rsum"]))
    sha256 = hashlib.sha256((trained / "checkpoints" / "best.safetensors").read_bytes()).hexdigest()
    assert run["best"] == {"epoch": int(best["epoch"]), "val/rsum": float(best["val/rsum"]), "sha256": sha256}
    measured = figures(trained)["metrics"]
    assert run["metrics"] == {f"test/{name}": value for name, value in measured.items()}
    recalls = [measured[f"{direction}/r{k}"] for direction in ("i2t", "t2i") for k in (1, 5, 10)]
    assert measured["rsum"] == pytest.approx(sum(recalls))
    # A command of another test may have kept its encodings there.
    written = {path.name for path in (trained / "checkpoints").iterdir()} - {"best.encoded"}
    assert written == {"best.safetensors", "last.ckpt"}


def killed_after(run, process, epochs):
    """Kill the process at the first sight of last.ckpt written after so many rows of metrics.csv."""
    history, last = run / "metrics.csv", run / "checkpoints" / "last.ckpt"
    while not history.exists() or len(history.read_text().splitlines()) <= epochs:
        assert process.poll() is None, (run.parent / "output.txt").read_text()
        time.sleep(0.01)
    while not last.exists() or last.stat().st_mtime_ns < history.stat().st_mtime_ns:
        time.sleep(0.005)
    process.kill()
    process.wait()


def test_a_killed_run_ends_as_the_unbroken_one(vsehub, run_here, features, tmp_path):
    settings = (
        *features,
        "loader.batch_size=2",
        "embedding_dropout=0.2",
        "trainer.max_epochs=5",
        "scheduler.gamma=0.5",
    )
    run, unbroken, copied = (tmp_path / name for name in ("killed", "unbroken", "copied"))
    process = vsehub("train", *settings, f"hydra.run.dir={run}", cwd=tmp_path, start=True)
    killed_after(run, process, epochs=2)
    assert len(rows(run)) < 5
    assert record(run)["status"] == "running"
    run_here("train", f"resume={run}")
    run_here("train", *settings, f"hydra.run.dir={unbroken}")
    run_here("train", *settings, "loader.resident=false", f"hydra.run.dir={copied}")
    assert rows(run) == rows(unbroken) == rows(copied)
    assert record(run)["best"] == record(unbroken)["best"]  # the model's bytes included
    assert record(run)["metrics"] == record(unbroken)["metrics"]
    assert figures(run)["histograms"] == figures(unbroken)["histograms"]
    ours, *others = (
        torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
        for folder in (run, unbroken, copied)
    )
    for theirs in others:
        assert all(torch.equal(ours[name], weight) for name, weight in theirs.items())


def test_a_finished_run_that_is_extended_ends_as_the_unbroken_one(run_here, features, tmp_path):
    settings = (*features, "scheduler.step_size=1")
    run_here("train", *settings, "trainer.max_epochs=3", "hydra.run.dir=unbroken")
    run_here("train", *settings, "trainer.max_epochs=2", "hydra.run.dir=run")
    run, unbroken = tmp_path / "run", tmp_path / "unbroken"
    assert (record(run)["status"], record(run)["epochs"]) == ("finished", 2)
    run_here("train", "resume=run", "trainer.max_epochs=3")
    assert rows(run) == rows(unbroken)
    for name in ("status", "best", "metrics"):
        assert record(run)[name] == record(unbroken)[name]
    ours, theirs = (torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True) for folder in (run, unbroken))
    assert all(torch.equal(ours["state_dict"][name], weight) for name, weight in theirs["state_dict"].items())


def test_a_checkpoint_is_self_contained(trained, vsehub, tmp_path):
    """Alone in a folder, from another working directory, it gives the figures that training gave."""
    alone = shutil.copy(trained / "checkpoints" / "best.safetensors", tmp_path / "moved.safetensors")
    (tmp_path / "elsewhere").mkdir()
    done = vsehub("evaluate", f"checkpoint={alone}", f"out={tmp_path}", cwd=tmp_path / "elsewhere")
    (written,) = tmp_path.glob("test-single-nns-*.json")
    again = json.loads(written.read_text())
    assert again["metrics"] == figures(trained)["metrics"]
    assert f"rsum {again['metrics']['rsum']:.1f}" in done.out
    assert list((tmp_path / "elsewhere").iterdir()) == []
    assert "out=FOLDER" in vsehub("evaluate", f"checkpoint={alone}", cwd=tmp_path, status=2).err


def test_evaluate_and_report(trained, run_here, features, undrawn, tmp_path):
    """A second run, two criteria over it, and one report over both runs."""
    runs = tmp_path / "runs"
    shutil.copytree(trained, runs / "hal", ignore=shutil.ignore_patterns("checkpoints"))
    settings = [setting for setting in features if not setting.startswith("bank")]
    settings += ["trainer.max_epochs=1", "trainer.precision=bf16-mixed", "hydra.run.dir=runs/max"]
    run_here("train", "loss=max", *settings)
    best = "checkpoint=runs/max/checkpoints/best.safetensors"
    run_here("evaluate", "-m", best, "criterion=csls", "reference=queries,train", "split=val")
    transductive, inductive = (
        figures(runs / "max", f"val-single-csls-{kind}") for kind in ("transductive", "inductive")
    )
    assert "themselves" in transductive["reference_set"]
    assert "training queries" in inductive["reference_set"]
    assert (inductive["criterion"], inductive["parameters"], inductive["images"]) == ("csls", {"k": 10}, 8)
    assert transductive["histograms"] != inductive["histograms"]
    run_here("evaluate", best, "criterion=csls+rgm", "split=val")
    assert not transductive["matching"]
    assert figures(runs / "max", "val-single-csls+rgm")["matching"]
    run_here("report", "runs", "out=page")
    table = (tmp_path / "page" / "table.md").read_text()
    for text in ("hal+mb", "| max", f"{figures(trained)['metrics']['rsum']:.1f}"):
        assert text in table
